import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { keptRows } from "../../live/decisions";
import { useFeed, useTopic } from "../../live/live";
import { count, plural } from "../../lib/format";
import { PageTitle } from "../../shell/Shell";
import { Empty, Panel } from "../../ui/Panel";
import { toast } from "../../ui/Toasts";
import { DecisionDrawer } from "./DecisionDrawer";
import { DecisionTable } from "./DecisionTable";
import { conditionsOf, filterOf, matches, type Filter, type FilterName } from "./filter";
import { Chips, Filters } from "./Filters";
import { usePause, type Cause } from "./pause";
import { decisionsQuery, exportDecisions } from "./queries";
import { merged, newerThan } from "./rows";
import "./decisions.css";

const route = getRouteApi("/shell/decisions");

/** DecisionsPage lists the records of requests while they arrive, also of rejected ones. */
export function DecisionsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  useTopic("decisions");
  const current = useFeed();
  const shown = filterOf(search);
  const key = JSON.stringify(conditionsOf(shown));
  const filter = useMemo(() => JSON.parse(key) as Filter, [key]);
  const pages = useInfiniteQuery(decisionsQuery(filter, current.restarts));
  useFirstEvent(current.rows[0]?.seq, pages.refetch);
  const fetched = useMemo(() => {
    const all = pages.data?.pages.flatMap((p) => p.items) ?? [];
    return pages.isPlaceholderData ? all.filter((d) => matches(filter, d)) : all; // the rows of the filter before
  }, [pages.data, pages.isPlaceholderData, filter]);
  const pause = usePause(current, fetched);
  const rows = useMemo(
    () => merged(pause.feed.rows, fetched, filter, pause.newest),
    [pause.feed, pause.newest, fetched, filter],
  );
  const fresh = newerThan(current.rows, pause.newest, filter).length;
  const filterBy = useCallback(
    (change: Filter) => void navigate({ search: (s) => ({ ...s, ...change }), replace: true }),
    [navigate],
  );
  const show = useCallback(
    (id: string | undefined) => void navigate({ search: (s) => ({ ...s, id }), replace: true }),
    [navigate],
  );
  const { set, end, causes } = pause;
  useEffect(end, [end, key]);
  useEffect(() => set("record", search.id !== undefined), [set, search.id]);
  const [top, toTop] = useState(0); // counts the wishes to scroll up
  const resume = () => {
    end();
    toTop((n) => n + 1);
  };
  const reload = () => {
    resume();
    void pages.refetch();
  };
  // The feed has dropped the records after the fetched ones.
  const oldest = current.rows.length >= keptRows ? current.rows.at(-1)!.seq : 0;
  const apart = causes.size === 0 && !pages.isFetching && fetched.length > 0 && oldest > fetched[0]!.seq;
  const { refetch } = pages;
  useEffect(() => void (apart && refetch()), [apart, refetch]);
  const last = pages.data?.pages.at(-1);
  return (
    <>
      <PageTitle note="Every request with its tier, its workers and the reasons, newest first. Rejected requests are included.">
        Decisions
      </PageTitle>
      <Filters filter={shown} rows={rows} onChange={filterBy} />
      <Chips filter={shown} onChange={filterBy} />
      <Panel
        title="Requests"
        live
        query={{ ...pages, data: pages.data && rows }}
        rows={12}
        actions={
          <>
            <PauseState causes={causes} fresh={fresh} onPause={() => set("button", true)} onResume={resume} />
            <Export filter={filter} />
          </>
        }
      >
        {(all) => (
          <>
            <Losses feed={current} since={pages.data?.pages[0]} onReload={reload} />
            {all.length === 0 ? (
              <NoRows filtered={key !== "{}"} kept={last?.kept ?? 0} />
            ) : (
              <DecisionTable key={key} rows={all} top={top} onOpen={show} onFilter={filterBy} onPause={set} />
            )}
            {all.length > 0 && (
              <p className="more row">
                {pages.hasNextPage && (
                  <button type="button" onClick={() => void pages.fetchNextPage()} disabled={pages.isFetchingNextPage}>
                    {pages.isFetchingNextPage ? "Loading…" : "Load older"}
                  </button>
                )}
                <span className="muted small">
                  {plural(all.length, "record")} shown
                  {last && `; the gateway keeps the last ${count(last.keep)} (decisions.keep)`}.
                </span>
              </p>
            )}
          </>
        )}
      </Panel>
      {search.id && <DecisionDrawer id={search.id} onClose={() => show(undefined)} />}
    </>
  );
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

interface PauseStateProps {
  causes: ReadonlySet<Cause>;
  fresh: number;
  onPause: () => void;
  onResume: () => void;
}

const texts: [Cause, string][] = [
  ["button", "Paused"],
  ["record", "Paused while a record is open"],
  ["scroll", "Paused: scrolled down"],
  ["pointer", "Paused under the pointer"],
];

function PauseState({ causes, fresh, onPause, onResume }: PauseStateProps) {
  const text = texts.find(([cause]) => causes.has(cause))?.[1];
  return (
    <>
      <span className="muted small">{text}</span>
      {fresh > 0 && (
        <button type="button" className="fresh" onClick={onResume}>
          {count(fresh)} new
        </button>
      )}
      {causes.has("button") || causes.has("scroll") ? (
        <button type="button" onClick={onResume}>
          Resume
        </button>
      ) : (
        <button type="button" onClick={onPause}>
          Pause
        </button>
      )}
    </>
  );
}

function Export({ filter }: { filter: Filter }) {
  const run = useMutation({
    mutationFn: () => exportDecisions(filter),
    onError: (e) => toast(`The export failed: ${e.message}`),
  });
  return (
    <button type="button" onClick={() => run.mutate()} disabled={run.isPending} title="All matching records, with candidates, as tierway replay reads them">
      {run.isPending ? "Exporting…" : "Export JSONL"}
    </button>
  );
}

interface LossesProps {
  feed: { dropped: number; missed: number };
  /** The page that was fetched last: earlier losses do not matter. */
  since: unknown;
  onReload: () => void;
}

/** Losses says how many records the list lacks, and fetches them. */
function Losses({ feed, since, onReload }: LossesProps) {
  const before = useRef({ since, dropped: feed.dropped, missed: feed.missed });
  if (before.current.since !== since) before.current = { since, dropped: feed.dropped, missed: feed.missed };
  const dropped = feed.dropped - before.current.dropped;
  const missed = feed.missed - before.current.missed;
  if (dropped <= 0 && missed <= 0) return null;
  return (
    <p className="note warn losses row" role="status">
      <span>
        {dropped > 0 && `The list lacks ${plural(dropped, "record")}: at most 50 per second are sent to a page. `}
        {missed > 0 && `${plural(missed, "record")} were evicted before this page received them. `}
      </span>
      {dropped > 0 && (
        <button type="button" onClick={onReload}>
          Load the newest again
        </button>
      )}
    </p>
  );
}

function NoRows({ filtered, kept }: { filtered: boolean; kept: number }) {
  return (
    <Empty>
      {filtered ? (
        <>
          <strong>No record matches.</strong> Remove a filter; the gateway has {plural(kept, "record")}. Matching requests
          appear here when they arrive.
        </>
      ) : (
        <>
          <strong>No requests yet.</strong> They appear here as they end. <Link to="/clients">Client setup</Link> has a command
          that sends the first one.
        </>
      )}
    </Empty>
  );
}

export type SetFilter = (change: Partial<Record<FilterName, string>>) => void;
