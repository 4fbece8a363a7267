import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { overviewQuery } from "../../api/queries";
import type { AttentionItem, OverviewTier, OverviewView } from "../../api/schema";
import { bytes, count, millis, percent, plural, rate, seconds } from "../../lib/format";
import { linkOf } from "../../lib/link";
import { PageTitle } from "../../shell/Shell";
import { Panel } from "../../ui/Panel";
import { Badge, Sparkline, toneOfWorker } from "../../ui/parts";
import { Checklist } from "./Checklist";
import { recentQuery, valuesOf, type Recent } from "./recent";
import "./overview.css";

/** OverviewPage shows whether the gateway works, and what needs attention. */
export function OverviewPage() {
  const overview = useQuery(overviewQuery);
  const recent = useQuery(recentQuery);
  return (
    <>
      <PageTitle>Overview</PageTitle>
      <Panel query={overview} live rows={2}>
        {(o) => <Gateway overview={o} recent={recent.data} />}
      </Panel>
      {overview.data && <Checklist done={overview.data.checklist} />}
      <Panel
        title="Needs attention"
        query={overview}
        live
        rows={2}
        empty={(o) =>
          o.attention.length === 0 && <p className="body quiet-line">Nothing. All workers, stores and settings are in order.</p>
        }
      >
        {(o) => <AttentionList items={o.attention} />}
      </Panel>
      <Panel
        title="Tiers and pools"
        query={overview}
        live
        empty={(o) =>
          o.tiers.length === 0 && (
            <p className="empty">
              <strong>No tiers.</strong> Add tiers with workers to the configuration, then <Link to="/config">reload it</Link>.
            </p>
          )
        }
      >
        {(o) => <Tiers tiers={o.tiers} recent={recent.data} />}
      </Panel>
    </>
  );
}

function Gateway({ overview: o, recent }: { overview: OverviewView; recent: Recent | undefined }) {
  return (
    <dl className="strip">
      <Fact name="Gateway">
        <Badge tone={o.ready ? "ok" : "err"} title={o.not_ready.join("; ")}>
          {o.ready ? "ready" : "not ready"}
        </Badge>
        <small className="muted">up {seconds(o.uptime_s)}</small>
      </Fact>
      <Fact name="Requests">
        <span className="value">{rate(o.rate.requests)}/s</span>
        <Sparkline values={valuesOf(recent, "requests")} label="Requests per second in the last five minutes" />
      </Fact>
      <Fact name="Errors">
        <span className={o.rate.errors ? "value bad" : "value"}>{rate(o.rate.errors)}/s</span>
        <small className="muted">rejected {rate(o.rate.refused)}/s</small>
      </Fact>
      <Fact name="In flight">
        <span className="value">{count(o.inflight)}</span>
        <small className="muted">{count(waiting(o.tiers))} queued</small>
      </Fact>
      <Fact name="CPU">
        <span className="value">{o.cpu == null ? "–" : `${o.cpu.toFixed(2)} cores`}</span>
        <Sparkline values={valuesOf(recent, "cpu")} label="CPU in the last five minutes" />
      </Fact>
      <Fact name="Memory">
        <span className="value">{bytes(o.memory_bytes)}</span>
        <small className="muted">{plural(o.goroutines, "goroutine")}</small>
      </Fact>
      <Fact name="Stores">
        <Store name="database" state={o.sql.state} />
        <Store name="Redis" state={o.redis.state} />
      </Fact>
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Store({ name, state }: { name: string; state: string }) {
  const tone = state === "ok" ? "ok" : state === "off" ? "off" : "err";
  return (
    <Badge tone={tone}>
      {name} {state}
    </Badge>
  );
}

function waiting(tiers: OverviewTier[]): number {
  return tiers.reduce((sum, t) => sum + Object.values(t.queue).reduce((n, q) => n + q.waiting, 0), 0);
}

function AttentionList({ items }: { items: AttentionItem[] }) {
  return (
    <ul className="attention">
      {items.map((a) => (
        <li key={a.subject + a.message}>
          <Badge tone={a.severity === "error" ? "err" : "warn"}>{a.severity}</Badge>
          {a.subject && a.link ? <Link {...linkOf(a.link)}>{a.subject}</Link> : <strong>{a.subject}</strong>}
          <span>{a.message}</span>
        </li>
      ))}
    </ul>
  );
}

function Tiers({ tiers, recent }: { tiers: OverviewTier[]; recent: Recent | undefined }) {
  return (
    <div className="table" role="region" aria-label="Tiers and pools" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {["Name", "Model", "Workers"].map((h) => (
              <th key={h} scope="col">
                {h}
              </th>
            ))}
            {["Requests/s", "Errors/s", "TTFT p50", "p95"].map((h) => (
              <th key={h} scope="col" className="num">
                {h}
              </th>
            ))}
            <th scope="col">TTFT p95, 5 min</th>
            <th scope="col" className="num">
              In flight
            </th>
            <th scope="col">Queue by class</th>
          </tr>
        </thead>
        <tbody>
          {tiers.map((t) => (
            <tr key={t.name}>
              <td>
                <Link to="/workers" search={{ pool: t.name }}>
                  {t.name}
                </Link>{" "}
                {!t.tier && <small className="muted">pool</small>}
              </td>
              <td>{t.model || <span className="muted">as requested</span>}</td>
              <td>
                <WorkerStates states={t.workers} />
              </td>
              <td className="num">{rate(t.requests_per_s)}</td>
              <td className={t.errors_per_s ? "num bad" : "num"}>{rate(t.errors_per_s)}</td>
              <td className="num">{millis(t.ttft_p50_ms)}</td>
              <td className="num">{millis(t.ttft_p95_ms)}</td>
              <td>
                <Sparkline values={valuesOf(recent, "ttft_p95", { tier: t.name })} label={`TTFT p95 of ${t.name}`} />
              </td>
              <td className="num">{count(t.inflight)}</td>
              <td>
                <Queue queue={t.queue} tier={t.name} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function WorkerStates({ states }: { states: Record<string, number> }) {
  const total = Object.values(states).reduce((a, b) => a + b, 0);
  return (
    <span className="row">
      {Object.entries(states)
        .sort(([a], [b]) => (a === "up" ? -1 : b === "up" ? 1 : a.localeCompare(b)))
        .map(([state, n]) => (
          <Badge key={state} tone={toneOfWorker(state)}>
            {n === total ? n : `${n} of ${total}`} {state.replace("_", " ")}
          </Badge>
        ))}
    </span>
  );
}

const classes = ["interactive", "background", "batch"];

function Queue({ queue, tier }: { queue: OverviewTier["queue"]; tier: string }) {
  const total = Object.values(queue).reduce((n, q) => n + q.waiting, 0);
  if (total === 0) return <span className="muted">empty</span>;
  return (
    <span className="queue">
      {classes.map((c) => {
        const q = queue[c];
        if (!q || q.waiting === 0) return null;
        return (
          <span key={c} title={`${percent(q.waiting / total)} of the queue of ${tier}`}>
            {c} {count(q.waiting)} <small className="muted">oldest {seconds(q.oldest_s)}</small>
          </span>
        );
      })}
    </span>
  );
}
