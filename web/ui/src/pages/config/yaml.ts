import type { Override } from "../../api/schema";

/** yamlOf returns the weights of overrides as lines for the workers of config.yaml. A drain has weight 0. */
export function yamlOf(overrides: Override[]): string {
  return overrides
    .map((o) => `- { name: ${JSON.stringify(o.worker)}, weight: ${o.drain ? 0 : o.weight} }`)
    .join("\n");
}
