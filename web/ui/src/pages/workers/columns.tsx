import type { WorkerState } from "../../api/schema";
import { ago, clock, count, millis, percent } from "../../lib/format";
import type { Column } from "../../ui/DataTable";
import { Badge, Bar, toneOfWorker } from "../../ui/parts";
import { DrainButton } from "./Drain";
import type { Preview } from "./useWeightEdit";
import { WeightControl } from "./WeightControl";
import { ageText, breakerText, ignoresWeights, isKept, prefixHit, shareText, shareTitle, sinceOf, type Lifetime } from "./weights";

interface Context {
  /** Name of the pool's policy. */
  policy: string | undefined;
  /** The expected shares while a weight is changed. */
  preview: Preview | undefined;
  lifetime: Lifetime;
  onPreview: (p: Preview | undefined) => void;
  onOpen: (worker: string) => void;
}

/** columnsOf returns the columns of a pool's table. */
export function columnsOf({ policy, preview, lifetime, onPreview, onOpen }: Context): Column<WorkerState>[] {
  return [
    { id: "name", header: "Worker", value: (w) => w.name, cell: (w) => <Name worker={w} /> },
    { id: "state", header: "State", value: (w) => w.state, cell: (w) => <State worker={w} /> },
    {
      id: "weight",
      header: "Weight",
      value: (w) => w.weight,
      cell: (w) => <WeightControl worker={w} lifetime={lifetime} onPreview={onPreview} />,
    },
    {
      id: "share",
      header: ignoresWeights(policy) ? "Share now" : "Share now → expected",
      title: shareTitle(policy),
      value: (w) => w.distribution.now,
      cell: (w) => <Share worker={w} promised={!ignoresWeights(policy)} preview={preview} onOpen={onOpen} />,
    },
    { id: "breaker", header: "Breaker", value: (w) => w.breaker.state, cell: (w) => <Breaker worker={w} /> },
    { id: "load", header: "In flight", value: (w) => w.inflight, cell: (w) => <Load worker={w} /> },
    {
      id: "waiting",
      header: "In engine",
      value: (w) => w.engine_waiting,
      cell: (w) => <Engine worker={w} />,
      numeric: true,
    },
    {
      id: "ttft",
      header: "TTFT p95",
      value: (w) => (w.ttft.count ? w.ttft.p95_ms : undefined),
      cell: (w) => (w.ttft.count ? millis(w.ttft.p95_ms) : "–"),
      numeric: true,
    },
    {
      id: "hits",
      header: <SinceStart>Prefix hits</SinceStart>,
      title: sinceStart,
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
      header: <SinceStart>Failed</SinceStart>,
      title: sinceStart,
      value: (w) => w.totals.requests.error,
      cell: (w) => count(w.totals.requests.error),
      numeric: true,
    },
    { id: "drain", header: "", label: "Drain", cell: (w) => <DrainButton worker={w} /> },
  ];
}

/** Name shows a worker with its role, which it has only in a pool whose workers hand prompts over. */
function Name({ worker: w }: { worker: WorkerState }) {
  if (!w.role) return w.name;
  return (
    <span className="lines">
      {w.name}
      <small className="muted">{w.role}</small>
    </span>
  );
}

const sinceStart = "since the start of the gateway";

function SinceStart({ children }: { children: string }) {
  return (
    <>
      {children}
      <br />
      <small>in total</small>
    </>
  );
}

function State({ worker: w }: { worker: WorkerState }) {
  const since = sinceOf(w);
  return (
    <span className="lines">
      <span className="row tight">
        <Badge tone={isKept(w) ? "warn" : toneOfWorker(w.state)} title={w.last_error}>
          {w.state === "open" ? "breaker open" : w.state.replace("_", " ")}
        </Badge>
        {since && (
          <small className="muted" title={`since ${clock(since)}`}>
            {ageText(since, Date.now())}
          </small>
        )}
      </span>
      {w.drain && w.drain.inflight > 0 && <small className="muted">{w.drain.inflight} left</small>}
      {w.drain?.overdue && <span className="chip warn">overdue</span>}
      {isKept(w) && (
        <span className="chip warn" title="Its breaker is not closed, but too many workers of the pool fail.">
          kept in rotation
        </span>
      )}
      {w.saturated && <span className="chip warn">saturated</span>}
      {w.share < 1 && w.state === "up" && <span className="chip">slow start {percent(w.share)}</span>}
    </span>
  );
}

/** Breaker shows the state of the breaker in words, and why it is not closed. */
function Breaker({ worker: w }: { worker: WorkerState }) {
  const { state, cause, until } = w.breaker;
  if (state === "closed") return <small className="muted">closed</small>;
  return (
    <span className="lines">
      <span className="bad">
        {breakerText(state)} <small title={`since ${clock(w.breaker.since)}`}>{ageText(w.breaker.since, Date.now())}</small>
      </span>
      {cause && <small>{cause}</small>}
      {until && <small className="muted">probe {ago(until)}</small>}
    </span>
  );
}

interface ShareProps {
  worker: WorkerState;
  /** Whether the weights say which share is expected. */
  promised: boolean;
  preview: Preview | undefined;
  onOpen: (worker: string) => void;
}

function Share({ worker: w, promised, preview, onOpen }: ShareProps) {
  const previewed = preview?.expected[w.name];
  const weight = preview?.worker === w.name ? preview.weight : w.weight;
  const o = w.weights.override;
  return (
    <span className="lines">
      <span>
        <span className="num">{shareText(w.distribution.now)}</span>
        {promised && (
          <>
            {" "}
            →{" "}
            <strong className={previewed === undefined ? "num" : "num previewed"}>
              {shareText(previewed ?? w.distribution.expected)}
            </strong>
          </>
        )}
      </span>
      {weight === 0 && <small className="muted">no new requests</small>}
      {o?.weight !== undefined && (
        <button
          type="button"
          className="chip info"
          title={`set by ${o.by} ${ago(o.at)}. Show it, reset it or keep it in the file.`}
          onClick={() => onOpen(w.name)}
        >
          override, file {w.weights.file}
        </button>
      )}
      {o?.weight !== undefined && o.until && <small className="muted">ends {ago(o.until)}</small>}
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
  if (w.metrics_stale) return <span className="muted" title="The engine's metrics are too old.">–</span>;
  return (
    <>
      {count(w.engine_running)} {w.engine_waiting > 0 && <small className="muted">+{count(w.engine_waiting)} waiting</small>}
    </>
  );
}
