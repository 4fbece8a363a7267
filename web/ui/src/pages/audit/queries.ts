import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, result } from "../../api/client";
import type { AuditPage, AuditView } from "../../api/schema";

interface AuditFilter {
  actor?: string;
  action?: string;
  target?: string;
  since?: string;
}

/** periods are the choices of the period, in hours. */
export const periods: Record<string, number> = { "last hour": 1, "last day": 24, "last week": 24 * 7, "last 30 days": 24 * 30 };

/** sinceOf returns the beginning of a period, or undefined for all entries. */
export function sinceOf(period: string | undefined, now: number): string | undefined {
  const hours = period ? periods[period] : undefined;
  return hours === undefined ? undefined : new Date(now - hours * 3_600_000).toISOString();
}

/** auditQuery returns the pages of the audit log that a filter selects, newest first. */
export function auditQuery(filter: AuditFilter) {
  return infiniteQueryOptions({
    queryKey: ["audit", filter],
    initialPageParam: undefined as string | undefined,
    queryFn: async ({ pageParam }) => {
      const query = {
        ...filter,
        since: sinceOf(filter.since, Date.now()),
        cursor: pageParam === undefined ? undefined : Number(pageParam),
        limit: 100,
      };
      return (await result(api.GET("/admin/audit", { params: { query } }))) as AuditPage;
    },
    getNextPageParam: (last: AuditPage) => last.next_cursor ?? undefined,
  });
}

/** cursorOf returns the cursor of the page that begins with an entry, or undefined if the id is no number. */
export function cursorOf(id: string): number | undefined {
  return /^[1-9]\d{0,14}$/.test(id) ? Number(id) + 1 : undefined;
}

/** entryQuery returns one entry of the log, or null if it does not exist. */
export function entryQuery(id: string) {
  return queryOptions({
    queryKey: ["audit", "entry", id],
    queryFn: async (): Promise<AuditView | null> => {
      const cursor = cursorOf(id);
      if (cursor === undefined) return null;
      const page = (await result(api.GET("/admin/audit", { params: { query: { cursor, limit: 1 } } }))) as AuditPage;
      return page.items.find((e) => String(e.id) === id) ?? null; // the page begins with an older entry if id is missing
    },
  });
}
