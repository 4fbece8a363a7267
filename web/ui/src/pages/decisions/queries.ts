import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, base, result } from "../../api/client";
import { download } from "../../lib/download";
import type { DecisionPage, operations } from "../../api/schema";
import type { Filter } from "./filter";

const firstPage = 200;
const olderPage = 500;

type Query = NonNullable<operations["list-decisions"]["parameters"]["query"]>;

// The gateway checks the values of an address, so they are sent as they are.
function queryOf(filter: Filter, cursor: number): Query {
  return { ...(filter as Query), limit: cursor ? olderPage : firstPage, ...(cursor > 0 && { cursor }) };
}

/** decisionsQuery returns the pages of records that a filter selects, newest first. After a restart of the gateway they begin anew. */
export function decisionsQuery(filter: Filter, restarts: number) {
  return infiniteQueryOptions({
    queryKey: ["decisions", filter, restarts],
    initialPageParam: 0,
    queryFn: async ({ pageParam }) => {
      const query = queryOf(filter, pageParam);
      return (await result(api.GET("/admin/decisions", { params: { query } }))) as DecisionPage;
    },
    getNextPageParam: (last: DecisionPage) => (last.next_cursor ? Number(last.next_cursor) : undefined),
    // The stream brings newer records, so fetched ones are not fetched again.
    staleTime: Infinity,
    refetchOnWindowFocus: false,
    gcTime: 0,
    placeholderData: keepPreviousData,
  });
}

/** decisionQuery returns the whole record of a request. A record does not change. */
export function decisionQuery(id: string) {
  return queryOptions({
    queryKey: ["decision", id],
    queryFn: () => result(api.GET("/admin/decisions/{id}", { params: { path: { id } } })),
    staleTime: Infinity,
  });
}

/** exportDecisions saves all records that a filter selects as JSON lines. A link cannot send an Accept header. */
export async function exportDecisions(filter: Filter): Promise<void> {
  const url = new URL("admin/decisions", base);
  for (const [name, value] of Object.entries(filter)) url.searchParams.set(name, value);
  await download(url, "application/x-ndjson", "decisions.jsonl");
}

/** tenantQuery returns a tenant with its present limits. */
export function tenantQuery(name: string) {
  return queryOptions({
    queryKey: ["tenants", "one", name],
    queryFn: () => result(api.GET("/admin/tenants/{name}", { params: { path: { name } } })),
  });
}
