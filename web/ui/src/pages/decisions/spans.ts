import type { DecisionView } from "../../api/schema";

/** Span is one phase of a request. Times are milliseconds after its beginning. */
export interface Span {
  name: string;
  kind: "gateway" | "queue" | "wait" | "answer" | "failed";
  from: number;
  to: number;
}

/** spansOf returns the phases of a request in their order. */
export function spansOf(d: DecisionView): Span[] {
  const all: Span[] = [];
  const add = (name: string, kind: Span["kind"], from: number, to: number) => {
    if (to > from) all.push({ name, kind, from, to });
  };
  add("Gateway", "gateway", 0, d.overhead_ms);
  for (const h of d.hooks ?? []) add(`Hook ${h.name}`, h.error ? "failed" : "wait", h.at_ms, h.at_ms + h.duration_ms);
  const c = d.cache;
  if (c) add("Response cache", "wait", c.at_ms ?? 0, (c.at_ms ?? 0) + (c.embedding_ms ?? 0) + (c.lookup_us ?? 0) / 1000);
  for (const a of d.attempts ?? []) {
    add(`Queue for ${a.worker}`, "queue", a.at_ms - (a.queue_ms ?? 0), a.at_ms);
    for (const p of a.handover?.prefills ?? []) {
      add(`${p.worker}: prefill`, p.error_type ? "failed" : "wait", p.at_ms, p.end_at_ms);
    }
    const sent = a.handover?.decode_at_ms || a.at_ms;
    const header = a.at_ms + a.duration_ms;
    const end = Math.max(a.end_at_ms ?? 0, header);
    if (a.error || a.error_type) {
      add(`${a.worker}: failed`, "failed", sent, end);
      continue;
    }
    if (!d.stream) {
      // The engine sends the whole answer at once, so the time of its first token is unknown.
      add(`${a.worker}: answer`, "answer", sent, end);
      continue;
    }
    const first = a.first_at_ms || header;
    add(`${a.worker}: until the first token`, "wait", sent, first);
    add(`${a.worker}: answer`, "answer", first, end);
  }
  if (!d.attempts?.length) add("Queue", "queue", d.overhead_ms, d.overhead_ms + d.queue_ms);
  return all;
}
