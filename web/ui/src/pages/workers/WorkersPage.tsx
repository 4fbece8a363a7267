import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { workersQuery } from "../../api/queries";
import type { PoolState, WorkerState } from "../../api/schema";
import { useTopic } from "../../live/live";
import { count, rate } from "../../lib/format";
import { PageTitle } from "../../shell/Shell";
import { DataTable } from "../../ui/DataTable";
import { Empty, Panel } from "../../ui/Panel";
import { columnsOf } from "./columns";
import { lifetimes, matches } from "./weights";
import type { Shares } from "./WeightControl";
import { WorkerDrawer } from "./WorkerDrawer";
import "./workers.css";

const route = getRouteApi("/shell/workers");

/** WorkersPage shows the workers of all pools, and changes their weights. */
export function WorkersPage() {
  useTopic("workers");
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (change: Partial<typeof search>) => void navigate({ search: (s) => ({ ...s, ...change }), replace: true });
  const workers = useQuery(workersQuery);
  const [lifetime, setLifetime] = useState("");
  const open = workers.data?.workers.find((w) => w.name === search.worker);
  const pools = [...new Set(workers.data?.workers.map((w) => w.pool) ?? [])];
  const shown = pools.filter((p) => !search.pool || p === search.pool);
  return (
    <>
      <PageTitle note="Weights and drains are live overrides: they apply at once, and config.yaml stays as it is.">
        Workers
      </PageTitle>
      <div className="row">
        <input
          type="search"
          placeholder="name, model, state or region"
          aria-label="Filter workers"
          value={search.q ?? ""}
          onChange={(e) => set({ q: e.target.value })}
        />
        <select aria-label="Pool" value={search.pool ?? ""} onChange={(e) => set({ pool: e.target.value })}>
          <option value="">all tiers and pools</option>
          {pools.map((p) => (
            <option key={p}>{p}</option>
          ))}
        </select>
        <label className="row">
          A changed weight stays{" "}
          <select value={lifetime} onChange={(e) => setLifetime(e.target.value)}>
            {lifetimes.map((l) => (
              <option key={l.id} value={l.id}>
                {l.label}
              </option>
            ))}
          </select>
        </label>
      </div>
      {workers.data === undefined || pools.length === 0 ? (
        <Panel title="Workers" query={workers} empty={() => <NoWorkers />}>
          {() => null}
        </Panel>
      ) : (
        shown.map((pool) => (
          <PoolPanel
            key={pool}
            pool={pool}
            state={workers.data.pools[pool]}
            workers={workers.data.workers.filter((w) => w.pool === pool && matches(w, search.q ?? ""))}
            query={workers}
            ttl_s={lifetimes.find((l) => l.id === lifetime)?.ttl_s}
            sort={search.sort}
            onSort={(sort) => set({ sort })}
            onOpen={(worker) => set({ worker })}
          />
        ))
      )}
      {open && <WorkerDrawer worker={open} onClose={() => set({ worker: undefined })} />}
    </>
  );
}

interface PoolPanelProps {
  pool: string;
  state: PoolState | undefined;
  workers: WorkerState[];
  query: ReturnType<typeof useQuery<{ workers: WorkerState[] }>>;
  ttl_s: number | undefined;
  sort: string | undefined;
  onSort: (sort: string) => void;
  onOpen: (worker: string) => void;
}

function PoolPanel({ pool, state, workers, query, ttl_s, sort, onSort, onOpen }: PoolPanelProps) {
  const [preview, setPreview] = useState<Shares>();
  const columns = useMemo(() => columnsOf(preview, ttl_s, setPreview), [preview, ttl_s]);
  return (
    <Panel
      title={pool}
      live
      query={query}
      actions={
        state && (
          <small className="muted">
            {state.policy} · prefill {rate(state.prefill_rate)} tokens/s · answers of about {count(Math.round(state.output_tokens.value))}{" "}
            tokens ·{" "}
            <Link to="/rules" search={{ tab: "tiers" }}>
              settings
            </Link>
          </small>
        )
      }
    >
      {() =>
        workers.length === 0 ? (
          <Empty>
            <strong>No worker of {pool} matches.</strong> Change the filter.
          </Empty>
        ) : (
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
        )
      }
    </Panel>
  );
}

function NoWorkers() {
  return (
    <Empty>
      <strong>No workers.</strong> Add one under a tier of config.yaml, such as{" "}
      <code>{'workers: [ { name: small-0, url: "http://vllm-0:8000" } ]'}</code>, then <Link to="/config">reload it</Link>.
    </Empty>
  );
}
