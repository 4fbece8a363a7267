import type { Override } from "../../api/schema";

/** yamlOf returns the weights of overrides as lines for the workers of config.yaml. A drain has no place in the file. */
export function yamlOf(overrides: Pick<Override, "worker" | "weight" | "drain">[]): string {
  return overrides
    .filter((o) => o.weight !== undefined)
    .map((o) => `- { name: ${JSON.stringify(o.worker)}, weight: ${o.weight} }`)
    .join("\n");
}

/** overrideText returns what an override does. A drain hides the weight, which applies again after it. */
export function overrideText(o: Pick<Override, "weight" | "drain">): string {
  const weight = o.weight === undefined ? undefined : `weight ${o.weight}`;
  return [o.drain ? "drain" : undefined, weight].filter(Boolean).join(", then ");
}
