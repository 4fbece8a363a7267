import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { DecisionView } from "../../api/schema";
import { useFeed, useTopic } from "../../live/live";
import { count, plural } from "../../lib/format";
import { PageTitle } from "../../shell/Shell";
import { Empty, Panel } from "../../ui/Panel";
import { toast } from "../../ui/Toasts";
import { DecisionDrawer } from "./DecisionDrawer";
import { DecisionTable } from "./DecisionTable";
import { fields, filterOf, matches, type Filter } from "./filter";
import { exportLines, pagesQuery } from "./queries";
import { joined } from "./rows";
import "./decisions.css";

const route = getRouteApi("/shell/decisions");

/** DecisionsPage lists the decisions of the last requests, rejected ones included, as they happen. */
export function DecisionsPage() {
  useTopic("decisions");
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const filter = useMemo(() => filterOf(search), [search]);
  const pages = useInfiniteQuery(pagesQuery(filter));
  const feed = useFeed();
  const fetched = useMemo(() => pages.data?.pages.flatMap((p) => p.items) ?? [], [pages.data]);
  const newest = useMemo(
    () => joined(feed.rows.filter((d) => matches(filter, d)), fetched),
    [feed.rows, fetched, filter],
  );
  const { rows, waiting, setPaused, show } = usePause(newest);
  const set = (change: Partial<typeof search>) => void navigate({ search: (s) => ({ ...s, ...change }), replace: true });
  const span = pages.data?.pages[0];
  return (
    <>
      <PageTitle note={span && `The gateway keeps the last ${count(span.keep)} records.`}>Decisions</PageTitle>
      <Filters filter={filter} onChange={set} />
      {(feed.dropped > 0 || feed.missed > 0) && (
        <p className="note warn" role="status">
          {feed.dropped > 0 && `${plural(feed.dropped, "record")} left out: the page receives at most 50 per second. `}
          {feed.missed > 0 && `${plural(feed.missed, "record")} evicted before the page received them. `}
          Narrow the filter and reload to see all.
        </p>
      )}
      <Panel
        title="Requests, newest first"
        live
        query={{ ...pages, data: pages.data && rows }}
        actions={
          <>
            {waiting > 0 && (
              <button type="button" className="primary" onClick={show}>
                {count(waiting)} new
              </button>
            )}
            {pages.hasNextPage && (
              <button type="button" onClick={() => void pages.fetchNextPage()} disabled={pages.isFetchingNextPage}>
                Load older
              </button>
            )}
            <button type="button" onClick={() => void exportLines(filter).catch((e: Error) => toast(e.message))}>
              Export JSON lines
            </button>
          </>
        }
        empty={(all) => all.length === 0 && <NoRows filtered={Object.keys(filter).length > 0} />}
      >
        {(all) => (
          <DecisionTable
            rows={all}
            onPause={setPaused}
            onFilter={(name, value) => set({ [name]: value })}
            onOpen={(d) => set({ id: d.request_id })}
          />
        )}
      </Panel>
      {search.id && <DecisionDrawer id={search.id} onClose={() => set({ id: undefined })} />}
    </>
  );
}

/** usePause keeps the rows as they are while the person reads them, and counts the new ones. */
function usePause(newest: DecisionView[]) {
  const [kept, keep] = useState<DecisionView[]>();
  const [paused, setPaused] = useState(false);
  const first = kept?.[0]?.seq ?? 0;
  return {
    rows: kept ?? newest,
    waiting: kept ? newest.findIndex((d) => d.seq <= first) : 0,
    setPaused: (on: boolean) => {
      if (on === paused) return;
      setPaused(on);
      keep(on ? newest : undefined);
    },
    show: () => keep(paused ? newest : undefined),
  };
}

function NoRows({ filtered }: { filtered: boolean }) {
  return (
    <Empty>
      {filtered ? (
        <>
          <strong>No request matches.</strong> Remove a part of the filter.
        </>
      ) : (
        <>
          <strong>No requests yet.</strong> Client setup has a command that sends the first one; it appears here within a second.
        </>
      )}
    </Empty>
  );
}

function Filters({ filter, onChange }: { filter: Filter; onChange: (change: Filter) => void }) {
  return (
    <div className="row">
      <input
        type="search"
        placeholder="id, tenant, model, worker or code"
        aria-label="Filter decisions"
        size={32}
        value={filter.q ?? ""}
        onChange={(e) => onChange({ q: e.target.value })}
      />
      <select aria-label="Outcome" value={filter.outcome ?? ""} onChange={(e) => onChange({ outcome: e.target.value })}>
        <option value="">all outcomes</option>
        {["ok", "refused", "failed", "truncated", "client_gone"].map((o) => (
          <option key={o} value={o}>
            {o.replace("_", " ")}
          </option>
        ))}
      </select>
      {fields
        .filter((f) => f !== "q" && f !== "outcome" && filter[f])
        .map((f) => (
          <button key={f} type="button" className="chip info" aria-label={`Remove the filter ${f}`} onClick={() => onChange({ [f]: "" })}>
            {f}: {filter[f]} ×
          </button>
        ))}
    </div>
  );
}
