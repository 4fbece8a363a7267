import type { DecisionView } from "../../api/schema";

/** Height of a row in pixels, as the style sheet has it. */
export const rowHeight = 29;

/** Rows above and below the visible part, so that scrolling shows no gap. */
const spare = 12;

/** Window is the part of the rows that is in the document. */
export interface Window {
  from: number;
  to: number;
}

/** windowOf returns the rows to draw for a scroll position and height of the box, in pixels. */
export function windowOf(rows: number, top: number, height: number): Window {
  const from = Math.max(0, Math.min(Math.floor(top / rowHeight), rows) - spare);
  return { from, to: Math.min(rows, Math.ceil((top + height) / rowHeight) + spare) };
}

/** joined returns live rows, then fetched older rows without those that the live rows have; newest first. */
export function joined(live: DecisionView[], fetched: DecisionView[]): DecisionView[] {
  const oldest = live.at(-1)?.seq ?? Infinity;
  return [...live, ...fetched.filter((d) => d.seq < oldest)];
}

/** cachedShare returns the share of prompt tokens that the engine had cached. */
export function cachedShare(d: DecisionView): number | undefined {
  const prompt = d.usage?.prompt ?? 0;
  return prompt > 0 ? (d.usage?.cached ?? 0) / prompt : undefined;
}

/** Hop is one attempt as the table shows it. */
export interface Hop {
  worker: string;
  failed: string | undefined;
}

/** hopsOf returns the attempts of a decision: which worker failed with what, and which one answered. */
export function hopsOf(d: DecisionView): Hop[] {
  return (d.attempts ?? []).map((a, i, all) => {
    const last = i === all.length - 1;
    const failed = last && d.outcome === "ok" ? undefined : (a.error_type ?? (a.status && a.status >= 400 ? String(a.status) : undefined));
    return { worker: a.worker, failed: failed ?? (last ? undefined : "failed") };
  });
}

/** Bar is one part of the waterfall of a decision, in milliseconds from its arrival. */
export interface Bar {
  name: string;
  from: number;
  to: number;
  kind: "queue" | "wait" | "stream";
}

/** waterfallOf returns when a request waited, when each attempt waited for its first token, and when it streamed. */
export function waterfallOf(d: DecisionView): Bar[] {
  const bars: Bar[] = [];
  if (d.queue_ms > 0) {
    const first = d.attempts?.[0]?.at_ms ?? d.duration_ms;
    bars.push({ name: "queue", from: Math.max(0, first - d.queue_ms), to: first, kind: "queue" });
  }
  for (const a of d.attempts ?? []) {
    const end = a.end_at_ms ?? a.at_ms + a.duration_ms;
    const first = a.first_at_ms ?? end;
    bars.push({ name: `${a.worker}: first token`, from: a.at_ms, to: first, kind: "wait" });
    if (end > first) bars.push({ name: `${a.worker}: answer`, from: first, to: end, kind: "stream" });
  }
  return bars;
}
