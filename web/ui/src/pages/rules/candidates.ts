import type { Candidate } from "../../api/schema";
import { count } from "../../lib/format";

/** ordered returns the selected worker first, then the others by score; those that were excluded stand last. */
export function ordered(all: Candidate[], selected: string | undefined): Candidate[] {
  const rank = (c: Candidate) => (c.worker === selected ? 0 : c.excluded ? 2 : 1);
  return [...all].sort((a, b) => rank(a) - rank(b) || a.score - b.score || a.worker.localeCompare(b.worker));
}

/** termNames returns the names of all terms of the candidates' scores. */
export function termNames(all: Candidate[]): string[] {
  return [...new Set(all.flatMap((c) => Object.keys(c.terms ?? {})))];
}

/** marginOf says how far the score of the next candidate is away; undefined if there is only one. */
export function marginOf(all: Candidate[], selected: string | undefined): string | undefined {
  const chosen = all.find((c) => c.worker === selected);
  const others = all.filter((c) => c.worker !== selected && !c.excluded);
  if (!chosen || others.length === 0) return undefined;
  const next = others.reduce((a, b) => (Math.abs(b.score - chosen.score) < Math.abs(a.score - chosen.score) ? b : a));
  const margin = Math.abs(next.score - chosen.score);
  if (margin === 0) return `${next.worker} has the same score; the tie was broken at random or by order.`;
  return `Next: ${next.worker}, ${margin < 0.0005 ? "less than 0.0005" : margin.toPrecision(2)} away.`;
}

/** lmcacheText returns what LMCache's controller says about a candidate, after its cached tokens. */
export function lmcacheText({ lmcache_tokens: tokens, lmcache_keys: keys }: Candidate): string {
  if (tokens) return `; LMCache ${count(tokens)}`;
  return keys ? `; LMCache ${count(keys)} keys` : "";
}
