import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, ApiError, result } from "../../api/client";
import type { ExplainOrder, ReplayOrder } from "../../api/schema";

export const rulesQuery = queryOptions({
  queryKey: ["rules"],
  queryFn: () => result(api.GET("/admin/rules")),
});

/** tierReportQuery returns what the tiers are worth, with their usage of the last UTC days, today included. */
export function tierReportQuery(days: number) {
  return queryOptions({
    queryKey: ["tiers", "report", days],
    queryFn: () => {
      const from = new Date(Date.now() - (days - 1) * 86_400_000).toISOString().slice(0, 10);
      return result(api.GET("/admin/tiers/report", { params: { query: { from } } }));
    },
    placeholderData: keepPreviousData,
  });
}

/** tenantNamesQuery returns the first names of tenants that contain q, and the number of all such names. */
export function tenantNamesQuery(q = "") {
  return queryOptions({
    queryKey: ["tenants", "names", q],
    queryFn: async ({ signal }) => {
      const query = { limit: 1000, ...(q && { q }) };
      const page = await result(api.GET("/admin/tenants", { params: { query }, signal }));
      return { names: page.items.map((t) => t.name), total: page.total };
    },
    placeholderData: keepPreviousData,
  });
}

/** draftQuery returns the text of the configuration file, from which drafts begin; "" without a file. */
export const draftQuery = queryOptions({
  queryKey: ["config", "draft"],
  queryFn: async () => {
    try {
      return (await result(api.GET("/admin/config/file"))).text;
    } catch (e) {
      if (e instanceof ApiError && e.status === 409) return "";
      throw e;
    }
  },
});

/** explain returns where a request would go. */
export function explain(body: ExplainOrder) {
  return result(api.POST("/admin/route/explain", { body }));
}

/** replayDecisions repeats recorded decisions, under a draft if there is one. */
export function replayDecisions(body: ReplayOrder) {
  return result(api.POST("/admin/route/replay", { body }));
}
