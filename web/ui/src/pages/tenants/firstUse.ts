import type { DecisionView, TenantView } from "../../api/schema";

/**
 * firstUseOf returns the time of the first request of a new key, or undefined. rows are the live decisions of this
 * gateway, newest first. tenants have the use of all gateways, up to a minute later.
 */
export function firstUseOf(
  key: string,
  rows: Pick<DecisionView, "key" | "time">[],
  tenants: Pick<TenantView, "key_list">[],
): string | undefined {
  const live = rows.findLast((d) => d.key === key)?.time;
  return live ?? tenants.flatMap((t) => t.key_list).find((k) => k.id === key)?.last_used_at;
}
