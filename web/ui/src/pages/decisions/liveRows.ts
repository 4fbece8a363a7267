import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";
import type { DecisionView } from "../../api/schema";
import { keptRows, type Feed } from "../../live/decisions";
import { useFeed, useTopic } from "../../live/live";
import { matches, type Filter } from "./filter";
import { usePause } from "./pause";
import { decisionsQuery } from "./queries";
import { merged, newerThan } from "./rows";

/** useLiveRows returns the records that a filter selects: the fetched pages, and what the stream brought since. */
export function useLiveRows(filter: Filter) {
  useTopic("decisions");
  const feed = useFeed();
  const pages = useInfiniteQuery(decisionsQuery(filter, feed.restarts));
  useFirstEvent(feed.rows[0]?.seq, pages.refetch);
  const fetched = useMemo(() => {
    const all = pages.data?.pages.flatMap((p) => p.items) ?? [];
    return pages.isPlaceholderData ? all.filter((d) => matches(filter, d)) : all; // the rows of the filter before
  }, [pages.data, pages.isPlaceholderData, filter]);
  const pause = usePause(feed, fetched);
  const rows = useMemo(() => merged(pause.feed.rows, fetched, filter, pause.newest), [pause.feed, pause.newest, fetched, filter]);
  useGapRefetch(feed, fetched, pause.causes.size === 0 && !pages.isFetching, pages.refetch);
  return { feed, pages, pause, rows, fresh: newerThan(feed.rows, pause.newest, filter).length };
}

// Records that arrive between the first page and the begin of the stream are in neither. The first
// event shows that the stream has begun; after that, one more fetch has them.
function useFirstEvent(newest: number | undefined, refetch: () => unknown): void {
  const before = useRef({ newest, done: false });
  useEffect(() => {
    if (before.current.done || newest === before.current.newest) return;
    before.current.done = true;
    void refetch();
  }, [newest, refetch]);
}

// A full feed has dropped the records after the fetched ones, so these are fetched again.
function useGapRefetch(feed: Feed, fetched: DecisionView[], may: boolean, refetch: () => unknown): void {
  const oldest = feed.rows.length >= keptRows ? feed.rows.at(-1)!.seq : 0;
  const gap = may && fetched.length > 0 && oldest > fetched[0]!.seq;
  useEffect(() => void (gap && refetch()), [gap, refetch]);
}
