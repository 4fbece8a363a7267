import type { Override, OverrideImpact, WorkerState } from "../../api/schema";

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

/** hiddenText says that a live override hides a weight of an edited configuration. */
export function hiddenText(o: OverrideImpact): string {
  const name = o.drain ? `drain of ${o.worker}` : `weight ${o.weight} of ${o.worker}`;
  return `The live override wins: the ${name} applies, and the edited weight ${o.file_weight} changes nothing.`;
}

/** impactText says what becomes of a live override after a reload. drained: it is a drain, for which the API has weight 0. */
export function impactText(o: OverrideImpact, drained: boolean): string {
  const name = drained ? `drain of ${o.worker}` : `weight ${o.weight} of ${o.worker}`;
  const file = o.file_weight === undefined ? "" : `; the file has ${drained ? "weight " : ""}${o.file_weight}`;
  switch (o.effect) {
    case "shadows":
      return `${name} hides the file's new value${file}`;
    case "ends":
      return `${name} ends, because the worker is removed`;
    case "begins":
      return `${name} applies again, because the worker returns`;
    default:
      return `${name} stays${file}`;
  }
}
