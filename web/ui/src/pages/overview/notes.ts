import type { WorkerState } from "../../api/schema";
import { clock } from "../../lib/format";

/** Note is why a worker takes no new requests by the will of an operator. */
interface Note {
  worker: string;
  text: string;
}

/** notesOf returns the notes about drains and weights of 0. now: the present time. */
export function notesOf(workers: Pick<WorkerState, "name" | "drain" | "weights">[], now = new Date()): Note[] {
  return workers.flatMap((w) => {
    const { effective, override } = w.weights;
    const by = override ? ` by ${override.by}` : "";
    if (w.drain) return [{ worker: w.name, text: `Drain since ${clock(w.drain.since, now)}${by}: no new requests.` }];
    if (effective > 0) return [];
    const origin = override?.weight === 0 ? `since ${clock(override.at, now)}${by}` : "in config.yaml";
    return [{ worker: w.name, text: `Weight 0 ${origin}: no new requests.` }];
  });
}
