import { Link } from "@tanstack/react-router";
import type { OverviewTier, OverviewView } from "../../api/schema";
import { bytes, count, plural, rate, seconds } from "../../lib/format";
import { Badge, Sparkline } from "../../ui/parts";
import { valuesOf, type Recent } from "./recent";

/** Gateway shows the state and the load of the gateway in one line. */
export function Gateway({ overview: o, recent }: { overview: OverviewView; recent: Recent | undefined }) {
  const errors = o.attention.filter((a) => a.severity === "error").length;
  return (
    <dl className="strip">
      <Fact name="Gateway">
        <Badge tone={!o.ready ? "err" : errors > 0 ? "warn" : "ok"} title={o.not_ready.join("; ")}>
          {!o.ready ? "not ready" : errors > 0 ? `ready, ${plural(errors, "error")} below` : "ready"}
        </Badge>
        <small className="muted">up {seconds(o.uptime_s)}</small>
      </Fact>
      <Fact name="Requests">
        <span className="value">{rate(o.rate.requests)}/s</span>
        <Sparkline values={valuesOf(recent, "requests")} label="Requests per second in the last five minutes" />
      </Fact>
      <Fact name="Errors">
        <span className={o.rate.errors ? "value bad" : "value"}>{rate(o.rate.errors)}/s</span>
        <Link to="/decisions" search={{ outcome: "refused" }} className={o.rate.refused ? "small bad" : "small"}>
          rejected {rate(o.rate.refused)}/s
        </Link>
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
