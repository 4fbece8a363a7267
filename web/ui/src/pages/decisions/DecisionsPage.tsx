import { useMutation } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useState } from "react";
import { count, plural } from "../../lib/format";
import { PageTitle } from "../../shell/Shell";
import { Empty, Panel } from "../../ui/Panel";
import { toast } from "../../ui/Toasts";
import { Chips } from "./Chips";
import { DecisionDrawer } from "./DecisionDrawer";
import { DecisionTable } from "./DecisionTable";
import { conditionsOf, filterOf, type Filter } from "./filter";
import { Filters } from "./Filters";
import { useLiveRows } from "./liveRows";
import { Losses } from "./Losses";
import { PauseState } from "./PauseState";
import { exportDecisions } from "./queries";
import "./decisions.css";

const route = getRouteApi("/shell/decisions");

/** DecisionsPage lists the records of requests while they arrive, also of rejected ones. */
export function DecisionsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const filterBy = useCallback(
    (change: Filter) => void navigate({ search: (s) => ({ ...s, ...change }), replace: true }),
    [navigate],
  );
  const show = useCallback(
    (id: string | undefined) => void navigate({ search: (s) => ({ ...s, id }), replace: true }),
    [navigate],
  );
  const shown = filterOf(search);
  const key = JSON.stringify(conditionsOf(shown));
  const filter = useMemo(() => JSON.parse(key) as Filter, [key]);
  const live = useLiveRows(filter);
  const { set, end } = live.pause;
  useEffect(end, [end, key]);
  useEffect(() => set("record", search.id !== undefined), [set, search.id]);
  return (
    <>
      <PageTitle note="Every request with its tier, its workers and the reasons, newest first. Rejected requests are included.">
        Decisions
      </PageTitle>
      <Filters filter={shown} rows={live.rows} onChange={filterBy} />
      <Chips filter={shown} onChange={filterBy} />
      <Requests live={live} filter={filter} onOpen={show} onFilter={filterBy} />
      {search.id && <DecisionDrawer id={search.id} onClose={() => show(undefined)} />}
    </>
  );
}

interface RequestsProps {
  live: ReturnType<typeof useLiveRows>;
  filter: Filter;
  onOpen: (id: string) => void;
  onFilter: (change: Filter) => void;
}

/** Requests is the panel with the list and its controls. */
function Requests({ live: { feed, pages, pause, rows, floor, ended, fresh }, filter, onOpen, onFilter }: RequestsProps) {
  const [top, toTop] = useState(0); // a change scrolls up
  const resume = () => {
    pause.end();
    toTop((n) => n + 1);
  };
  const reload = () => {
    resume();
    void pages.refetch();
  };
  return (
    <Panel
      title="Requests"
      live
      query={{ ...pages, data: pages.data && rows }}
      rows={12}
      actions={
        <>
          <PauseState causes={pause.causes} fresh={fresh} onPause={() => pause.set("button", true)} onResume={resume} />
          <Export filter={filter} />
        </>
      }
    >
      {(all) => (
        <>
          <Losses feed={feed} since={floor} onReload={reload} />
          {all.length === 0 ? (
            <NoRows filtered={Object.keys(filter).length > 0} kept={pages.data?.pages.at(-1)?.kept ?? 0} />
          ) : (
            <>
              <DecisionTable key={JSON.stringify(filter)} rows={all} top={top} onOpen={onOpen} onFilter={onFilter} onPause={pause.set} />
              <Older pages={pages} shown={all.length} ended={ended} />
            </>
          )}
        </>
      )}
    </Panel>
  );
}

/** Older loads older records, below the list. A list that has ended shows as many rows as it can. */
function Older({ pages, shown, ended }: { pages: RequestsProps["live"]["pages"]; shown: number; ended: boolean }) {
  const last = pages.data?.pages.at(-1);
  return (
    <p className="more row">
      {pages.hasNextPage && !ended && (
        <button type="button" onClick={() => void pages.fetchNextPage()} disabled={pages.isFetchingNextPage}>
          {pages.isFetchingNextPage ? "Loading…" : "Load older"}
        </button>
      )}
      <span className="muted small">
        {plural(shown, "record")} shown
        {last && `; the gateway keeps the last ${count(last.keep)} (decisions.keep)`}.
      </span>
    </p>
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

function NoRows({ filtered, kept }: { filtered: boolean; kept: number }) {
  return (
    <Empty>
      {filtered ? (
        <>
          <strong>No record matches.</strong> Remove a filter; the gateway has {plural(kept, "record")}. Matching requests
          appear here when they end.
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
