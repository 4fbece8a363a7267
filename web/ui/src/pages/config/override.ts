import type { Override, WorkerState } from "../../api/schema";

/** overrideText returns what an override does. A drain hides the weight, which applies again after it. */
export function overrideText(o: Pick<Override, "weight" | "drain">): string {
  const weight = o.weight === undefined ? undefined : `weight ${o.weight}`;
  return [o.drain ? "drain" : undefined, weight].filter(Boolean).join(", then ");
}

/** overridden returns the worker of an override. It fails if the override is no longer the one that was shown. */
export function overridden(o: Pick<Override, "worker" | "at">, workers: WorkerState[]): WorkerState {
  const w = workers.find((w) => w.name === o.worker);
  if (w?.weights.override?.at === o.at) return w;
  throw new Error("The override was changed meanwhile. Look at it and try again.");
}
