import { Link } from "@tanstack/react-router";
import type { AnswersState, AttentionItem, HookState, LmcacheState, OverviewTier, OverviewView } from "../../api/schema";
import { bytes, count, percent, plural, rate, seconds } from "../../lib/format";
import { Badge, Sparkline } from "../../ui/parts";
import { hitsOf, valuesOf, type Recent } from "./recent";

/** Gateway shows the state and the load of the gateway in one line. */
export function Gateway({ overview: o, recent }: { overview: OverviewView; recent: Recent | undefined }) {
  const lmcache = o.tiers.filter((t) => t.lmcache);
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
      {o.hooks.length > 0 && (
        <Fact name="Hooks">
          {o.hooks.map((h) => (
            <Hook key={h.name} hook={h} item={o.attention.find((a) => a.subject === `hook ${h.name}`)} />
          ))}
        </Fact>
      )}
      {lmcache.length > 0 && (
        <Fact name="LMCache">
          {lmcache.map((t) => (
            <LMCache key={t.name} tier={t.name} of={t.lmcache!} />
          ))}
        </Fact>
      )}
      {o.response_cache && <Answers of={o.response_cache} recent={recent} />}
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

/** Hook shows the breaker of a hook, and whether it is listed under attention. */
function Hook({ hook: h, item }: { hook: HookState; item: AttentionItem | undefined }) {
  return (
    <Badge tone={!item ? "ok" : item.severity === "error" ? "err" : "warn"} title={item?.message}>
      {h.name}
      {h.shadow && " (shadow)"} {h.breaker !== "closed" ? h.breaker.replace("_", " ") : item ? "fails" : "ok"}
    </Badge>
  );
}

/** LMCache shows the state of a tier's controller, and its look-ups with a match, or the number of keys without look-ups. */
function LMCache({ tier, of: s }: { tier: string; of: LmcacheState }) {
  const lookups = s.matched + s.missed;
  return (
    <>
      <Badge tone={s.state === "up" ? "ok" : s.state === "starting" ? "off" : "warn"} title={s.error}>
        {tier} {s.state.replace("_", " ")}
      </Badge>
      <small className="muted">{lookups > 0 ? `${percent(s.matched / lookups)} of ${plural(lookups, "look-up")} match` : s.keys > 0 && plural(s.keys, "key")}</small>
    </>
  );
}

function Answers({ of: a, recent }: { of: AnswersState; recent: Recent | undefined }) {
  const hits = hitsOf(recent);
  return (
    <Fact name="Response cache">
      <span className="value">{percent(hits.share)} hits</span>
      <Sparkline values={hits.rate} label="Kept answers that were sent per second in the last five minutes" />
      <small className="muted">
        {a.store === "redis" && "in Redis; semantic: "}
        {plural(a.entries, "answer")}, {bytes(a.bytes)} of {bytes(a.max_bytes)}
      </small>
    </Fact>
  );
}

function waiting(tiers: OverviewTier[]): number {
  return tiers.reduce((sum, t) => sum + Object.values(t.queue).reduce((n, q) => n + q.waiting, 0), 0);
}
