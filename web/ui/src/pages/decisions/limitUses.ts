import type { DecisionView, TenantView } from "../../api/schema";

type LimitUse = NonNullable<TenantView["now"]>["limits"][number];

/**
 * limitUsesOf returns the tenant's limit that rejected a request, as it is set now. It is empty if the key has this
 * limit too: the record does not name the one that applied.
 */
export function limitUsesOf(d: DecisionView, tenant: TenantView | undefined): LimitUse[] {
  if (!tenant || !d.limit) return [];
  const key = tenant.key_list?.find((k) => k.id === d.key);
  if (key?.limits && d.limit in key.limits) return [];
  return (tenant.now?.limits ?? []).filter((u) => u.scope === "tenant" && u.limit === d.limit);
}
