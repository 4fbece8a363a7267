// Sentences about prompts that one worker computes for another one.
import type { Attempt, HandoverChoice } from "../api/schema";
import { count, millis } from "./format";
import { codedText, reasonText } from "./reasons";

/** handoverText returns which worker computes a prompt, and why, in one line. worker is the worker of the answer. */
export function handoverText(h: HandoverChoice, worker: string): string {
  if (h.decision !== "remote") return `computed by ${worker} itself: ${whyText(h, h.local_s, h.remote_s)}`;
  if (!h.prefill_worker) return `no prefill worker takes the request, and ${worker} computes no prompts`;
  return `computed by ${h.prefill_worker}, handed to ${worker}: ${whyText(h, h.remote_s, h.local_s)}`;
}

function whyText(h: HandoverChoice, chosen: number | undefined, other: number | undefined): string {
  if (h.why === "cost") return `${cost(chosen)} against ${cost(other)}`;
  if (h.why === "threshold") return `${count(h.uncached_tokens)} uncached tokens, ${reasonText("handover", h.why)}`;
  return reasonText("handover", h.why);
}

/** cost shows a predicted cost, which is in seconds. */
const cost = (s: number | undefined) => `${Number((s ?? 0).toPrecision(2))} s`;

/** costsText returns the predicted costs of both ways; undefined if they were not compared. */
export function costsText(h: HandoverChoice): string | undefined {
  if (!h.remote_s && !h.local_s) return undefined;
  const transfer = h.transfer_s ? `, with ${cost(h.transfer_s)} for the transfer` : "";
  return `Predicted cost: ${cost(h.local_s)} on the worker of the answer, ${cost(h.remote_s)} with ${h.prefill_worker}${transfer}; ${count(h.uncached_tokens)} uncached tokens.`;
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
