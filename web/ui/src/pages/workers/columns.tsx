import type { WorkerState } from "../../api/schema";
import { ago, count, millis, percent } from "../../lib/format";
import type { Column } from "../../ui/DataTable";
import { Badge, Bar, toneOfWorker } from "../../ui/parts";
import { prefixHit } from "./weights";
import { WeightControl, type Shares } from "./WeightControl";

/** columnsOf returns the columns of a pool's table. preview has the expected shares while a weight is changed. */
export function columnsOf(
  preview: Shares | undefined,
  ttl_s: number | undefined,
  onPreview: (s: Shares | undefined) => void,
): Column<WorkerState>[] {
  return [
    { id: "name", header: "Worker", value: (w) => w.name, cell: (w) => w.name },
    { id: "state", header: "State", value: (w) => w.state, cell: (w) => <State worker={w} /> },
    {
      id: "weight",
      header: "Weight",
      value: (w) => w.weight,
      cell: (w) => <WeightControl worker={w} ttl_s={ttl_s} onPreview={onPreview} />,
    },
    {
      id: "share",
      header: "Share now → expected",
      value: (w) => w.distribution.now,
      cell: (w) => <Share worker={w} preview={preview?.[w.name]} />,
    },
    { id: "load", header: "In flight", value: (w) => w.inflight, cell: (w) => <Load worker={w} /> },
    {
      id: "waiting",
      header: "In engine",
      value: (w) => w.engine_waiting,
      cell: (w) => <Engine worker={w} />,
      numeric: true,
    },
    { id: "ttft", header: "TTFT p95", value: (w) => w.ttft.p95_ms, cell: (w) => (w.ttft.count ? millis(w.ttft.p95_ms) : "–"), numeric: true },
    {
      id: "hits",
      header: "Prefix hits",
      value: (w) => prefixHit(w).share,
      cell: (w) => (
        <>
          {percent(prefixHit(w).share)} <small className="muted">{prefixHit(w).source}</small>
        </>
      ),
      numeric: true,
    },
    {
      id: "errors",
      header: "Failed",
      value: (w) => w.totals.requests.error,
      cell: (w) => <span className={w.totals.requests.error ? "bad" : undefined}>{count(w.totals.requests.error)}</span>,
      numeric: true,
    },
  ];
}

/** State shows the state of a worker; that of its breaker has its cause. */
function State({ worker: w }: { worker: WorkerState }) {
  const cause = w.breaker.state === "closed" ? w.last_error : w.breaker.cause;
  return (
    <span className="row tight">
      <Badge tone={toneOfWorker(w.state)} title={cause}>
        {w.state === "open" ? "breaker open" : w.state.replace("_", " ")}
      </Badge>
      {w.state === "open" && w.breaker.until ? (
        <small className="muted">probe {ago(w.breaker.until)}</small>
      ) : (
        w.state !== "up" && w.since && <small className="muted">{ago(w.since)}</small>
      )}
      {w.drain && w.drain.inflight > 0 && <small className="muted">{w.drain.inflight} left</small>}
      {w.saturated && <span className="chip warn">saturated</span>}
      {w.share < 1 && w.state === "up" && <span className="chip">slow start {percent(w.share)}</span>}
    </span>
  );
}

function Share({ worker: w, preview }: { worker: WorkerState; preview: number | undefined }) {
  const expected = preview ?? w.distribution.expected;
  return (
    <span className="share">
      <span className="num">{percent(w.distribution.now)}</span> →{" "}
      <strong className={preview === undefined ? "num" : "num previewed"}>{percent(expected)}</strong>
      {w.weight === 0 && <small className="muted">no new requests</small>}
      {w.weights.override?.weight !== undefined && (
        <span className="chip info" title={`set by ${w.weights.override.by}; config.yaml has ${w.weights.file}`}>
          override{w.weights.override.until ? `, ends ${ago(w.weights.override.until)}` : ""}
        </span>
      )}
    </span>
  );
}

function Load({ worker: w }: { worker: WorkerState }) {
  const total = w.inflight + w.other_gateways_inflight;
  return (
    <Bar
      value={total}
      max={w.bound}
      text={w.bound > 0 ? `${count(total)}/${count(w.bound)}` : count(total)}
      label={`In-flight requests of ${w.name}`}
    />
  );
}

function Engine({ worker: w }: { worker: WorkerState }) {
  if (w.metrics_stale) return <span className="muted">–</span>;
  return (
    <>
      {count(w.engine_running)} {w.engine_waiting > 0 && <small className="muted">+{count(w.engine_waiting)} waiting</small>}
    </>
  );
}
