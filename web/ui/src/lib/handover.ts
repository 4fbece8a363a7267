// Sentences about prompts that one worker computes for another one.
import type { Attempt } from "../api/schema";
import { millis } from "./format";
import { codedText } from "./reasons";

/** promptText returns how the prompt of an attempt was computed; undefined in a tier without hand-over. */
export function promptText(a: Attempt): string | undefined {
  const h = a.handover;
  if (!h) return undefined;
  const stages = (h.prefills ?? []).map((p) => {
    return `${p.worker}${p.error_type ? " failed" : ""} in ${millis(p.end_at_ms - p.at_ms)}`;
  });
  const end = a.end_at_ms ?? 0;
  if (h.decode_at_ms && end > h.decode_at_ms) stages.push(`${a.worker} in ${millis(end - h.decode_at_ms)}`);
  const text = codedText("prompt", h.result);
  return stages.length > 0 ? `${text}. Stages: ${stages.join(", then ")}` : text;
}
