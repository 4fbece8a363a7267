import type { Attempt, DecisionView, Excluded } from "../../api/schema";
import { count, percent, UNKNOWN } from "../../lib/format";
import { codedText, reasonText, rejectionText } from "../../lib/reasons";
import type { Tone } from "../../ui/parts";
import { matches, type Filter } from "./filter";

/**
 * merged returns the rows to show, newest first: the fetched records, and the matching live ones after the record with the
 * number floor. Records after the one with the number newest are left out.
 */
export function merged(live: DecisionView[], fetched: DecisionView[], f: Filter, floor: number, newest = Infinity): DecisionView[] {
  const rows: DecisionView[] = [];
  let i = 0;
  for (const d of newerThan(live, floor, f)) {
    while (i < fetched.length && fetched[i]!.seq > d.seq) rows.push(fetched[i++]!);
    if (fetched[i]?.seq !== d.seq) rows.push(d);
  }
  const all = rows.length === 0 ? fetched : rows.concat(fetched.slice(i));
  const from = all.findIndex((d) => d.seq <= newest);
  return from > 0 ? all.slice(from) : from < 0 ? [] : all;
}

/** newerThan returns the matching records after the record with the number seq. */
export function newerThan(live: DecisionView[], seq: number, f: Filter): DecisionView[] {
  const end = live.findIndex((d) => d.seq <= seq);
  return (end < 0 ? live : live.slice(0, end)).filter((d) => matches(f, d));
}

/** Try is one attempt as the list shows it. */
export interface Try {
  worker: string;
  /** Worker that computed the prompt, if it is another one. */
  prefill?: string;
  good: boolean;
  /** Status or kind of the failure. */
  text: string;
}

/** triesOf returns the attempts of a request in their order. */
export function triesOf(d: DecisionView): Try[] {
  const all = d.attempts ?? [];
  return all.map((a, i) => ({ ...tryOf(a, i === all.length - 1 ? d.outcome : "failed"), ...prefillOf(a) }));
}

function prefillOf({ handover: h }: Attempt): Pick<Try, "prefill"> {
  const last = h?.result === "remote" ? h.prefills?.at(-1) : undefined;
  return last ? { prefill: last.worker } : {};
}

// The end of the request decides about its last attempt: an answer can break off after its header.
function tryOf(a: Attempt, outcome: string): Try {
  if (outcome === "ok") return { worker: a.worker, good: true, text: "" };
  if (outcome === "client_gone") return { worker: a.worker, good: false, text: "client disconnected" };
  const status = a.status && a.status >= 400 ? String(a.status) : "";
  return { worker: a.worker, good: false, text: status || a.error_type || reasonText("outcome", outcome) };
}

/** triedBefore returns the workers of earlier attempts that the selection of attempt i excluded, if it was in the same tier. */
export function triedBefore(d: DecisionView, i: number): Excluded[] {
  const all = d.attempts ?? [];
  const { tier, choice } = all[i] ?? { tier: all.at(-1)?.tier, choice: d.refused_choice };
  const candidates = new Set(choice?.candidates?.map((c) => c.worker));
  const workers = all.slice(0, i).filter((a) => a.tier === tier && !candidates.has(a.worker)).map((a) => a.worker);
  return [...new Set(workers)].map((worker) => ({ worker, why: "tried" }));
}

/** ShownReason is the reason of a row: its code, the filter that selects it, and its words. */
export interface ShownReason {
  filter: "reason" | "code";
  value: string;
  text: string;
}

/** reasonOf returns the reason for the worker, or the code of the error. */
export function reasonOf(d: DecisionView): ShownReason {
  if (d.outcome !== "ok" && d.code) return { filter: "code", value: d.code, text: rejectionText(d) ?? d.code };
  const value = d.reason ?? "";
  return { filter: "reason", value, text: codedText("worker", value) };
}

/** tokensOf shows prompt and output tokens. Without usage, the prompt is an estimate. */
export function tokensOf(d: DecisionView): string {
  if (d.usage && d.usage.prompt + d.usage.output > 0) {
    return `${d.estimated ? "≈" : ""}${count(d.usage.prompt)} + ${count(d.usage.output)}`;
  }
  return d.prompt_tokens_estimate ? `≈${count(d.prompt_tokens_estimate)}` : UNKNOWN;
}

/** prefixOf shows the cached part of the prompt: as the engine reported it, or as the gateway expected it. */
export function prefixOf(d: DecisionView): string {
  if (d.usage && d.usage.cached > 0 && d.usage.prompt > 0) return percent(d.usage.cached / d.usage.prompt);
  const attempt = d.attempts?.at(-1);
  const last = attempt?.handover?.prefills?.at(-1) ?? attempt; // the worker that computed the prompt
  if (!last || !d.prompt_tokens_estimate) return UNKNOWN;
  return `≈${percent(Math.min(last.predicted_cached_tokens / d.prompt_tokens_estimate, 1))}`;
}

/** endOf returns the time in milliseconds when a request ended. Records have this order. */
export function endOf(d: DecisionView): number {
  return Date.parse(d.time) + d.duration_ms;
}

/** timeOf shows a time with milliseconds in the zone of the browser, with its date if it is not today's. */
export function timeOf(at: number, now = new Date()): string {
  const t = new Date(at);
  const time = `${t.toLocaleTimeString("en-GB")}.${String(t.getMilliseconds()).padStart(3, "0")}`;
  return t.toDateString() === now.toDateString() ? time : `${t.toLocaleDateString("en-CA").slice(5)} ${time.slice(0, 8)}`;
}

/** distinct returns the different values of rows, the most frequent first. */
export function distinct(rows: DecisionView[], value: (d: DecisionView) => string | undefined): string[] {
  const counts = new Map<string, number>();
  for (const d of rows) {
    const v = value(d);
    if (v) counts.set(v, (counts.get(v) ?? 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1]).map(([v]) => v);
}

const tones: Record<string, Tone> = { ok: "ok", refused: "warn", client_gone: "off" };

/** toneOf returns the tone of a result. */
export function toneOf(outcome: string): Tone {
  return tones[outcome] ?? "err";
}
