import { QueryClient, queryOptions, useQuery } from "@tanstack/react-query";
import { api, ApiError, result } from "./client";

/** One client for all pages. Lists are fetched again when the stream reports a new version of them. */
export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 30_000,
      refetchOnWindowFocus: true,
      retry: (failures, error) => failures < 2 && (!(error instanceof ApiError) || error.status === 0 || error.status >= 502),
      retryDelay: 500,
    },
  },
});

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: async () => {
    const answer = await api.GET("/admin/session");
    return answer.response.status === 401 ? null : result(Promise.resolve(answer));
  },
  staleTime: Infinity,
});

export const overviewQuery = queryOptions({
  queryKey: ["overview"],
  queryFn: () => result(api.GET("/admin/overview")),
});

export const workersQuery = queryOptions({
  queryKey: ["workers"],
  queryFn: () => result(api.GET("/admin/workers")),
});

export const tiersQuery = queryOptions({
  queryKey: ["tiers"],
  queryFn: () => result(api.GET("/admin/tiers")),
});

export const statusQuery = queryOptions({
  queryKey: ["status"],
  queryFn: () => result(api.GET("/admin/status")),
});

/** useSession returns the signed-in person's name and role, or null. */
export function useSession() {
  return useQuery(sessionQuery).data ?? null;
}

/** useMayChange reports whether the session's role may change anything. */
export function useMayChange(): boolean {
  return useSession()?.role === "admin";
}
