import { queryOptions } from "@tanstack/react-query";
import { api, result } from "../../api/client";

/** A sparkline needs no new value each second, so its data is fetched every five seconds. */
export const recentQuery = queryOptions({
  queryKey: ["metrics", "overview"],
  queryFn: () => result(api.GET("/admin/metrics", { params: { query: { range: "5m", name: ["requests", "cpu", "ttft_p95", "response_cache"] } } })),
  refetchInterval: 5000,
});
