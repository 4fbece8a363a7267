import type { ReplayAnswer } from "../../api/schema";
import { count, plural } from "../../lib/format";
import { reasonText } from "../../lib/reasons";

/** Matrix has the number of requests by recorded tier (rows) and tier under the draft (columns). "" is a rejection. */
export interface Matrix {
  from: string[];
  to: string[];
  count: (from: string, to: string) => number;
}

/** matrixOf returns where the requests of each tier go. */
export function matrixOf(r: Pick<ReplayAnswer, "tiers" | "changed_tier">): Matrix {
  const moved = new Map(r.changed_tier.map((m) => [`${m.from} ${m.to}`, m.n]));
  const left = (tier: string) => r.changed_tier.reduce((sum, m) => sum + (m.from === tier ? m.n : 0), 0);
  const before = new Map(r.tiers.map((t) => [t.tier, t.requests.now]));
  const names = [...new Set([...r.tiers.map((t) => t.tier), ...r.changed_tier.flatMap((m) => [m.from, m.to])])];
  return {
    from: names.filter((n) => (before.get(n) ?? 0) > 0 || left(n) > 0),
    to: names.filter((n) => n !== "" || r.changed_tier.some((m) => m.to === "")),
    count: (from, to) => (from === to ? (before.get(from) ?? 0) - left(from) : (moved.get(`${from} ${to}`) ?? 0)),
  };
}

/** reproducedText states how many recorded decisions the configuration in force reproduces. */
export function reproducedText(r: ReplayAnswer): string {
  const [tiers, workers] = [r.tiers_reproduced, r.reproduced];
  const other = r.unknown.other_policy;
  const left = r.records - tiers.of + other;
  const unchecked = left > 0 ? `; ${count(left)} not checked` : "";
  if (tiers.n === tiers.of && workers.n === workers.of && other === 0) {
    const n = left > 0 ? `${count(tiers.n)} of ${count(tiers.of)} decisions that it could check` : `all ${count(tiers.n)} decisions`;
    return `The configuration in force reproduces ${n}${unchecked}.`;
  }
  const part = (p: { n: number; of: number }) => `${count(p.n)} of ${count(p.of)}`;
  return `The configuration in force reproduces the tier of ${part(tiers)} requests and the worker of ${part(workers)} selections${unchecked}.`;
}

/** summaryOf returns the result of a replay in one sentence. A request with another tier also has another worker. */
export function summaryOf(r: ReplayAnswer, drafted: boolean): string {
  if (r.n === 0) return `None of ${plural(r.records, "record")} can be decided again.`;
  if (!drafted) return reproducedText(r);
  const moved = (to: (tier: string) => boolean) => r.changed_tier.reduce((sum, m) => sum + (to(m.to) ? m.n : 0), 0);
  const all: [number, string][] = [
    [moved((tier) => tier !== ""), "would get another tier, and with it another worker"],
    [moved((tier) => tier === ""), "would be rejected"],
    [r.changed_worker, "would get another worker in the same tier"],
  ];
  const changes = all.filter(([n]) => n > 0).map(([n, text]) => `${count(n)} ${text}`);
  if (changes.length === 0) return `None of ${plural(r.n, "request")} would get another tier or worker.`;
  return `Of ${plural(r.n, "request")}, ${changes.join("; ")}.`;
}

/** handoversOf returns in one sentence which workers compute the prompts; undefined without hand-overs. */
export function handoversOf(r: ReplayAnswer, drafted: boolean): string | undefined {
  const h = r.handovers;
  if (!h) return undefined;
  const both = (t: { now: number; draft: number }) => (drafted ? `${count(t.now)} → ${count(t.draft)}` : count(t.now));
  return `Prompts by prefill workers: ${both(h.remote)}; by decode workers: ${both(h.local)}${drafted ? `; ${count(h.changed + h.changed_worker)} would change` : ""}.`;
}

/** limitsOf says what the records lack, and how the replay decided without it. */
export function limitsOf(r: ReplayAnswer): string[] {
  const u = r.unknown;
  const all: [number, string][] = [
    [u.rights, "a tenant or key that no longer exists: decided as if all tiers and models were permitted"],
    [u.token_counts, "an estimate in place of counted tokens: decided by the estimate"],
    [u.other_policy, "a worker that another policy selected: the worker is kept"],
    [u.bounds, "incomplete loads for the edited bounds: decided by the recorded loads"],
    [r.late ?? 0, "a record out of order: decided with later loads"],
  ];
  const texts = all.filter(([n]) => n > 0).map(([n, text]) => `${plural(n, "request")} with ${text}.`);
  if (r.keyword_groups_not_recorded.length > 0) {
    texts.push(`Keyword groups that no record has: ${r.keyword_groups_not_recorded.join(", ")}. They match nothing here.`);
  }
  if (r.config_generations > 1) texts.push(`These records come from ${r.config_generations} configurations.`);
  return [...r.skipped.map((s) => `${plural(s.n, "record")} left out: ${reasonText("skip", s.name)}.`), ...texts];
}
