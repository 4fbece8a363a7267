import { queryOptions } from "@tanstack/react-query";
import { api, result } from "../../api/client";
import { queries } from "../../api/queries";
import type { UsageView } from "../../api/schema";

/** listQuery returns all tenants with their keys, limits and usage in one request. */
export const listQuery = queryOptions({
  queryKey: ["tenants", "list"],
  queryFn: () => result(api.GET("/admin/tenants", { params: { query: { limit: 1000, today: true } } })),
  refetchInterval: 10_000, // usage has no event of its own
});

export type GroupBy = "tier" | "model" | "key" | "outcome";

/** usageQuery returns the usage of a tenant by UTC day. */
export function usageQuery(name: string, group_by: GroupBy | undefined) {
  return queryOptions({
    queryKey: ["tenants", "usage", name, group_by],
    queryFn: async () =>
      (await result(
        api.GET("/admin/tenants/{name}/usage", { params: { path: { name }, query: { group_by } } }),
      )) as UsageView,
  });
}

/** refresh fetches the tenants again, after a change. */
export function refresh(): void {
  void queries.invalidateQueries({ queryKey: ["tenants"] });
}
