import { queryOptions } from "@tanstack/react-query";
import { api, result } from "../../api/client";
import type { MetricsView } from "../../api/schema";

export type Recent = MetricsView;

/** A sparkline needs no value of each second, so it is fetched every five seconds. */
export const recentQuery = queryOptions({
  queryKey: ["metrics", "overview"],
  queryFn: () => result(api.GET("/admin/metrics", { params: { query: { range: "5m", name: ["requests", "cpu", "ttft_p95"] } } })),
  refetchInterval: 5000,
});

/** valuesOf returns the sum of the series with a name and labels; null where none has a value. */
export function valuesOf(recent: Recent | undefined, name: string, labels: Record<string, string> = {}): (number | null)[] {
  const found = (recent?.series ?? []).filter(
    (s) => s.name === name && Object.entries(labels).every(([k, v]) => s.labels[k] === v),
  );
  const [first, ...others] = found;
  if (!first) return [];
  return first.values.map((v, i) =>
    others.reduce<number | null>((sum, s) => {
      const other = s.values[i] ?? null;
      return sum === null ? other : other === null ? sum : sum + other;
    }, v),
  );
}
