import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useCallback, useMemo, useState } from "react";
import { useMayChange, workersQuery } from "../../api/queries";
import type { PoolState, WorkersView, WorkerState } from "../../api/schema";
import { useTopic } from "../../live/live";
import { count, rate } from "../../lib/format";
import { PageTitle } from "../../shell/Shell";
import { DataTable } from "../../ui/DataTable";
import { Empty, Panel, type PanelQuery } from "../../ui/Panel";
import { Code, viewerReason } from "../../ui/parts";
import { withChanges } from "./changes";
import { columnsOf } from "./columns";
import type { Preview } from "./useWeightEdit";
import { ignoresWeights, lifetimeOf, lifetimes, shownPools, type Lifetime } from "./weights";
import { WorkerDrawer } from "./WorkerDrawer";
import "./workers.css";

const route = getRouteApi("/shell/workers");

/** WorkersPage shows the workers of all pools, and changes their weights. */
export function WorkersPage() {
  useTopic("workers");
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = useCallback(
    (change: Partial<typeof search>) => void navigate({ search: (s) => ({ ...s, ...change }), replace: true }),
    [navigate],
  );
  const onOpen = useCallback((worker: string) => set({ worker }), [set]);
  const workers = useQuery(workersQuery);
  const [lifetime, setLifetime] = useState(lifetimeOf(""));
  const all = withChanges(workers.data?.workers ?? []);
  const open = all.find((w) => w.name === search.worker);
  const shown = shownPools(all, search.pool ?? "", search.q ?? "");
  return (
    <>
      <PageTitle note="Weights are relative: to send a worker fewer requests, lower its weight or raise the others. Changes apply at once; config.yaml stays as it is.">
        Workers
      </PageTitle>
      <div className="row">
        <input
          type="search"
          className="filter"
          placeholder="name, model, state or region"
          aria-label="Filter workers"
          value={search.q ?? ""}
          onChange={(e) => set({ q: e.target.value })}
        />
        <PoolChoice pools={[...new Set(all.map((w) => w.pool))]} pool={search.pool ?? ""} onPool={(pool) => set({ pool })} />
        <LifetimeChoice lifetime={lifetime} onLifetime={setLifetime} />
      </div>
      {shown.size === 0 && <NoMatch query={workers} onShowAll={() => set({ q: "", pool: "" })} />}
      {[...shown].map(([pool, members]) => (
        <PoolPanel
          key={pool}
          pool={pool}
          state={workers.data?.pools[pool]}
          workers={members}
          query={workers}
          lifetime={lifetime}
          sort={search.sort}
          onSort={(sort) => set({ sort })}
          onOpen={onOpen}
        />
      ))}
      {open && <WorkerDrawer worker={open} onClose={() => set({ worker: undefined })} />}
    </>
  );
}

/** NoMatch stands in place of the tables if no worker is shown. */
function NoMatch({ query, onShowAll }: { query: PanelQuery<WorkersView>; onShowAll: () => void }) {
  return (
    <Panel title="Workers" query={query} empty={(d) => d.workers.length === 0 && <NoWorkers />}>
      {() => (
        <Empty>
          <strong>No worker matches.</strong>{" "}
          <button type="button" className="link" onClick={onShowAll}>
            Show all workers
          </button>
        </Empty>
      )}
    </Panel>
  );
}

function PoolChoice({ pools, pool, onPool }: { pools: string[]; pool: string; onPool: (p: string) => void }) {
  return (
    <select aria-label="Pool" value={pool} onChange={(e) => onPool(e.target.value)}>
      <option value="">all tiers and pools</option>
      {pool && !pools.includes(pool) && <option>{pool}</option>}
      {pools.map((p) => (
        <option key={p}>{p}</option>
      ))}
    </select>
  );
}

function LifetimeChoice({ lifetime, onLifetime }: { lifetime: Lifetime; onLifetime: (l: Lifetime) => void }) {
  if (!useMayChange()) return <span className="muted">{viewerReason}</span>;
  return (
    <label className="row">
      Override ends{" "}
      <select value={lifetime.id} onChange={(e) => onLifetime(lifetimeOf(e.target.value))}>
        {lifetimes.map((l) => (
          <option key={l.id} value={l.id}>
            {l.label}
          </option>
        ))}
      </select>
    </label>
  );
}

interface PoolPanelProps {
  pool: string;
  state: PoolState | undefined;
  workers: WorkerState[];
  query: PanelQuery<unknown>;
  lifetime: Lifetime;
  sort: string | undefined;
  onSort: (sort: string) => void;
  onOpen: (worker: string) => void;
}

function PoolPanel({ pool, state, workers, query, lifetime, sort, onSort, onOpen }: PoolPanelProps) {
  const [preview, onPreview] = useState<Preview>();
  const policy = state?.policy;
  const columns = useMemo(
    () => columnsOf({ policy, preview, lifetime, onPreview, onOpen }),
    [policy, preview, lifetime, onOpen],
  );
  const model = workers[0]?.model;
  return (
    <Panel
      title={pool}
      live
      query={query}
      actions={
        state && (
          <small className="muted">
            {model && <>{model} · </>}
            {state.policy}
            {ignoresWeights(state.policy) && " ignores weights except 0"}
            {state.handover && ` · prefill by ${state.prefill_policy}`} · prefill {rate(state.prefill_rate)} tokens/s · answers of about{" "}
            {count(Math.round(state.output_tokens.value))} tokens ·{" "}
            <Link to="/rules" search={{ tab: "tiers" }}>
              settings
            </Link>
          </small>
        )
      }
    >
      {() => (
        <div className="workers">
          <DataTable
            label={`Workers of ${pool}`}
            columns={columns}
            rows={workers}
            rowKey={(w) => w.name}
            sort={sort}
            onSort={onSort}
            onOpen={(w) => onOpen(w.name)}
          />
        </div>
      )}
    </Panel>
  );
}

const exampleWorkers = `tiers:
  - name: small
    workers:
      - { name: small-0, url: "http://vllm-0:8000" }`;

function NoWorkers() {
  return (
    <Empty>
      <p>
        <strong>No workers.</strong> Add one under a tier of config.yaml, then{" "}
        <Link to="/config" search={{ tab: "reload" }}>
          reload it
        </Link>
        .
      </p>
      <Code text={exampleWorkers} label="A worker in config.yaml" />
    </Empty>
  );
}
