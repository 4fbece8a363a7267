import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, result } from "../../api/client";
import { queries } from "../../api/queries";
import type { UsageView } from "../../api/schema";

/** pageSize is the number of tenants in a list, and of keys in a tenant. */
export const pageSize = 1000;

/** listQuery returns the tenants with their keys, limits and usage: the first ones with q in their names. */
export function listQuery(q = "") {
  return queryOptions({
    queryKey: ["tenants", "list", q],
    queryFn: ({ signal }) =>
      result(api.GET("/admin/tenants", { params: { query: { limit: pageSize, today: true, ...(q && { q }) } }, signal })),
    refetchInterval: 10_000, // usage has no event of its own
    placeholderData: keepPreviousData,
  });
}

/** tenantQuery returns one tenant. */
export function tenantQuery(name: string) {
  return queryOptions({
    queryKey: ["tenants", "one", name],
    queryFn: () => result(api.GET("/admin/tenants/{name}", { params: { path: { name } } })),
    refetchInterval: 10_000,
  });
}

/** keysQuery returns the keys of a tenant: the first ones with q in their names. */
export function keysQuery(name: string, q: string) {
  return queryOptions({
    queryKey: ["tenants", "keys", name, q],
    queryFn: ({ signal }) => {
      const params = { path: { name }, query: { limit: 200, ...(q && { q }) } };
      return result(api.GET("/admin/tenants/{name}/keys", { params, signal }));
    },
    placeholderData: keepPreviousData,
  });
}

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
