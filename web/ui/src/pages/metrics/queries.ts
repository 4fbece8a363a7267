import { keepPreviousData, queryOptions, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, ApiError, result } from "../../api/client";
import { overviewQuery } from "../../api/queries";
import type { AuditPage } from "../../api/schema";

export const ranges = [
  { id: "5m", label: "5 minutes" },
  { id: "1h", label: "1 hour" },
  { id: "24h", label: "24 hours" },
] as const;

type Range = (typeof ranges)[number]["id"];

/** rangeOf returns the period of a search parameter, 5 minutes by default. */
export function rangeOf(text: string | undefined): Range {
  return ranges.find((r) => r.id === text)?.id ?? "5m";
}

// A chart of a longer period changes more slowly.
const refetchEvery: Record<Range, number> = { "5m": 2000, "1h": 10_000, "24h": 60_000 };

/** metricsQuery returns the history of a period. */
export function metricsQuery(range: Range) {
  return queryOptions({
    queryKey: ["metrics", range],
    queryFn: () => result(api.GET("/admin/metrics", { params: { query: { range } } })),
    refetchInterval: refetchEvery[range],
    placeholderData: keepPreviousData,
  });
}

/** useTierNames returns the names of all tiers and pools in their order. */
export function useTierNames(): string[] {
  const names = (useQuery(overviewQuery).data?.tiers ?? []).map((t) => t.name).join("\n");
  return useMemo(() => names.split("\n"), [names]);
}

/** recentAuditQuery returns the latest changes, which charts mark; none without a database. */
export const recentAuditQuery = queryOptions({
  queryKey: ["audit", "marks"],
  queryFn: async () => {
    try {
      const page = (await result(api.GET("/admin/audit", { params: { query: { limit: 200 } } }))) as AuditPage;
      return page.items;
    } catch (e) {
      if (e instanceof ApiError && e.status === 501) return [];
      throw e;
    }
  },
});
