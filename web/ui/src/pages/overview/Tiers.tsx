import { Link } from "@tanstack/react-router";
import type { OverviewTier } from "../../api/schema";
import { count, millis, percent, rate, seconds } from "../../lib/format";
import { Badge, Sparkline, toneOfWorker } from "../../ui/parts";
import { classes } from "../tenants/settings";
import { valuesOf, type Recent } from "./recent";

/** Tiers shows the workers, rates and queues of all tiers and pools. */
export function Tiers({ tiers, recent }: { tiers: OverviewTier[]; recent: Recent | undefined }) {
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
            {["Requests/s", "Errors/s", "Rejected/s", "TTFT p50", "p95"].map((h) => (
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
            <TierRow key={t.name} tier={t} recent={recent} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function TierRow({ tier: t, recent }: { tier: OverviewTier; recent: Recent | undefined }) {
  return (
    <tr>
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
      <td className={t.refused_per_s ? "num bad" : "num"}>{rate(t.refused_per_s)}</td>
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
