import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, base, result } from "../../api/client";
import type { DecisionPage } from "../../api/schema";
import { queryOf, type Filter } from "./filter";

/** pagesQuery returns the kept decisions that a filter selects, newest first. The stream adds newer ones. */
export function pagesQuery(filter: Filter) {
  return infiniteQueryOptions({
    queryKey: ["decisions", "pages", filter],
    initialPageParam: undefined as string | undefined,
    queryFn: async ({ pageParam }) => {
      const query = { ...queryOf(filter), limit: 200, ...(pageParam && { cursor: Number(pageParam) }) };
      return (await result(api.GET("/admin/decisions", { params: { query } }))) as DecisionPage;
    },
    getNextPageParam: (last: DecisionPage) => last.next_cursor ?? undefined,
    staleTime: Infinity, // the stream has what is newer
    refetchOnWindowFocus: false,
    gcTime: 0,
  });
}

/** decisionQuery returns one whole decision, with the candidates of each attempt. */
export function decisionQuery(id: string) {
  return queryOptions({
    queryKey: ["decisions", "one", id],
    queryFn: () => result(api.GET("/admin/decisions/{id}", { params: { path: { id } } })),
    staleTime: Infinity, // a record never changes
  });
}

/** exportLines saves the decisions that a filter selects as JSON lines. */
export async function exportLines(filter: Filter): Promise<void> {
  const url = new URL("admin/decisions", base);
  for (const [name, value] of Object.entries(queryOf(filter))) url.searchParams.set(name, String(value));
  const answer = await fetch(url, { headers: { Accept: "application/x-ndjson" } });
  if (!answer.ok) throw new Error(`The export failed with status ${answer.status}.`);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = "decisions.jsonl";
  link.click();
  URL.revokeObjectURL(link.href);
}
