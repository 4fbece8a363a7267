import { useInfiniteQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef } from "react";
import type { DecisionPage, DecisionView } from "../../api/schema";
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
  const { floor, fill } = useFloor(pages.data?.pages[0]);
  const rows = useMemo(
    () => merged(pause.feed.rows, fetched, filter, floor, pause.newest),
    [pause.feed, pause.newest, fetched, filter, floor],
  );
  useGapRefetch(feed, fetched, pause.causes.size === 0 && !pages.isFetching, () => {
    fill();
    void pages.refetch();
  });
  // Older pages continue the list only where it ends with a fetched record.
  const ended = rows.at(-1) !== fetched.at(-1);
  return { feed, pages, pause, rows, floor, ended, fresh: newerThan(feed.rows, pause.newest, filter).length };
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

/**
 * useFloor returns the number of the newest record when the list was fetched: live records are shown from there. After
 * fill, one more fetch keeps the number and so the live rows.
 */
function useFloor(first: DecisionPage | undefined): { floor: number; fill: () => void } {
  const state = useRef({ first, floor: 0, filling: false });
  if (state.current.first !== first) {
    const floor = state.current.filling ? state.current.floor : (first?.items[0]?.seq ?? 0);
    state.current = { first, floor, filling: false };
  }
  const fill = useCallback(() => void (state.current.filling = true), []);
  return { floor: state.current.floor, fill };
}

// A full feed has dropped the records after the fetched ones, so these are fetched again. The rows of the feed stay.
function useGapRefetch(feed: Feed, fetched: DecisionView[], may: boolean, refetch: () => void): void {
  const oldest = feed.rows.length >= keptRows ? feed.rows.at(-1)!.seq : 0;
  const gap = may && fetched.length > 0 && oldest > fetched[0]!.seq;
  const latest = useRef(refetch);
  latest.current = refetch;
  useEffect(() => void (gap && latest.current()), [gap]);
}
