// Sentences about prompts that one worker computes for another one.
import type { Attempt, HandoverChoice } from "../api/schema";
import { count, millis } from "./format";
import { codedText, reasonText } from "./reasons";

/** handoverText returns which worker computes a prompt, and why, in one line. worker is the decode worker. */
export function handoverText(h: HandoverChoice, worker: string): string {
  if (h.decision !== "remote") return `computed by ${worker} itself: ${whyText(h, worker)}`;
  if (!h.prefill_worker) return `no prefill worker takes the request, and ${worker} computes no prompts`;
  return `computed by ${h.prefill_worker}, handed to ${worker}: ${whyText(h, worker)}`;
}

function whyText(h: HandoverChoice, worker: string): string {
  const remote = h.decision === "remote";
  if (h.why === "cost" && remote) return `predicted cost ${cost(h.remote_s)}, or ${cost(h.local_s)} on ${worker} itself`;
  if (h.why === "cost") return `predicted cost ${cost(h.local_s)}, or ${cost(h.remote_s)} with ${h.prefill_worker}`;
  if (h.why === "threshold") return `${count(h.uncached_tokens)} uncached tokens, ${reasonText("handover", h.why)}`;
  return reasonText("handover", h.why);
}

/** cost shows a predicted cost, which is in seconds. */
const cost = (s: number | undefined) => `${Number((s ?? 0).toPrecision(2))} s`;

/** costsText returns the predicted costs of both ways; undefined if they were not compared. */
export function costsText(h: HandoverChoice): string | undefined {
  if (!h.remote_s && !h.local_s) return undefined;
  const transfer = h.transfer_s ? `, with ${cost(h.transfer_s)} for the transfer` : "";
  return `Predicted cost: ${cost(h.local_s)} on the decode worker, ${cost(h.remote_s)} with ${h.prefill_worker}${transfer}; ${count(h.uncached_tokens)} uncached tokens.`;
}

/** promptText returns how the prompt of an attempt was computed; undefined in a tier without hand-over. */
export function promptText(a: Attempt): string | undefined {
  const h = a.handover;
  if (!h) return undefined;
  const stages = (h.prefills ?? []).map((p) => {
    const failed = p.error_type ? ` failed (${p.error_type})` : "";
    return `${p.worker}${failed} in ${millis(p.end_at_ms - p.at_ms)}`;
  });
  const end = a.end_at_ms ?? 0;
  if (h.decode_at_ms && end > h.decode_at_ms) stages.push(`${a.worker} in ${millis(end - h.decode_at_ms)}`);
  const text = codedText("prompt", h.result);
  return stages.length > 0 ? `${text}. Stages: ${stages.join(", then ")}` : text;
}
