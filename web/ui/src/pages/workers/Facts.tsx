import type { WorkerState } from "../../api/schema";
import { ago, clock, count, millis, percent, rate } from "../../lib/format";
import { breakerText, failureText, prefixHit, roleText } from "./weights";

/** Facts shows what the gateway knows about a worker, by subject. */
export function Facts({ worker: w }: { worker: WorkerState }) {
  return (
    <div className="columns">
      <Group title="Load" facts={loadFacts(w)} />
      <Group title="Breaker" facts={breakerFacts(w)} />
      <Group title="Cache" facts={cacheFacts(w)} />
      <Group title="Learned" facts={learnedFacts(w)} />
      <Group title="Worker" facts={generalFacts(w)} />
    </div>
  );
}

type Fact = [name: string, value: string];

function Group({ title, facts }: { title: string; facts: Fact[] }) {
  return (
    <section className="stack tight">
      <h3>{title}</h3>
      <dl className="facts">
        {facts.map(([name, value]) => (
          <div key={name} className="contents">
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function loadFacts(w: WorkerState): Fact[] {
  const tokens = count(w.tokens_inflight);
  const engine = `${count(w.engine_running)} running, ${count(w.engine_waiting)} waiting, KV cache ${percent(w.kv_usage)} used`;
  return [
    ["In flight", `${count(w.inflight)} of this gateway, ${count(w.other_gateways_inflight)} of others`],
    ["Limit", w.bound ? `${count(w.bound)}${w.bound_learned ? ", learned" : ""}` : "none"],
    ["Tokens in flight", w.max_tokens_inflight ? `${tokens} of ${count(w.max_tokens_inflight)}` : tokens],
    ["Engine", w.metrics_stale ? "no current metrics" : engine],
    ["Effective weight", String(Number(w.effective_weight.toFixed(2)))],
  ];
}

function breakerFacts({ breaker: b, success_ratio }: WorkerState): Fact[] {
  return [
    ["State", `${breakerText(b.state)} since ${clock(b.since)}`],
    ["Cause", b.cause || "–"],
    ["Next probe", b.until ? ago(b.until) : "–"],
    ["Failures", `${count(b.failures)} of ${count(b.requests)} in the window, ${count(b.consecutive_failures)} in a row`],
    ["Slower than its peers", b.slow_ratio ? `${b.slow_ratio.toFixed(2)} ×` : "unknown"],
    ["Success ratio", percent(success_ratio)],
  ];
}

function cacheFacts(w: WorkerState): Fact[] {
  const hit = prefixHit(w);
  return [
    ["Prefix hits", `${percent(hit.share)} of ${count(w.totals.tokens.prompt)} prompt tokens`],
    ["Known from", hit.source === "events" ? "the engine's events" : "the routing history"],
    ...eventFacts(w),
    ["History", `${count(w.history_tokens)} tokens`],
  ];
}

/** eventFacts shows how well the gateway knows the cache of a worker's engine. */
function eventFacts({ kv_events: e }: WorkerState): Fact[] {
  if (!e) return [["Events", "none"]];
  const facts: Fact[] = [
    ["Events", `${e.state}, ${count(e.streams)} ${e.streams === 1 ? "stream" : "streams"}, lag ${millis(e.lag_ms)}`],
    ["Blocks", `${count(e.blocks)}, each of ${count(e.block_size)} tokens; ${count(e.evicted_blocks)} evicted for lack of memory`],
    ["Gaps", `${count(e.gaps)}, ${count(e.replays)} replayed, ${count(e.failed_replays)} failed replays; last ${ago(e.last_gap)}`],
    ["Restarts", `${count(e.restarts)} of the engine, ${count(e.resets)} resets of the blocks`],
  ];
  if (e.lookups > 0) facts.push(["Late look-ups", `${count(e.late_lookups)} of ${count(e.lookups)} in its tier or pool`]);
  return e.error ? [...facts, ["Events' error", e.error]] : facts;
}

function learnedFacts({ learned, ttft, latency, role }: WorkerState): Fact[] {
  return [
    ["Prefill", `${rate(learned.rate.value)} tokens/s from ${count(learned.rate.count)} requests`],
    ["Per output token", `${millis(1000 * learned.token_time.value)} from ${count(learned.token_time.count)} requests`],
    ["TTFT", ttft.count ? `mean ${millis(ttft.mean_ms)}, p95 ${millis(ttft.p95_ms)}, p99 ${millis(ttft.p99_ms)}` : "–"],
    [role === "prefill" ? "Prefill stage" : "Duration", latency.count ? `mean ${millis(latency.mean_ms)}, p95 ${millis(latency.p95_ms)}` : "–"],
  ];
}

function generalFacts(w: WorkerState): Fact[] {
  const { requests, tokens } = w.totals;
  return [
    ["Model", w.model || "as requested"],
    ["Further models", w.models.join(", ") || "none"],
    ["Region", w.region || "–"],
    ...(w.role ? ([["Role", roleText(w)]] as Fact[]) : []),
    ["Round trip", millis(w.round_trip_ms)],
    ["Last failed check", w.last_error || "none"],
    ["Last error", failureText(w.last_failure)],
    ["Requests", `${count(requests.ok)} ok, ${count(requests.error)} failed, ${count(requests.excluded)} excluded`],
    ["Tokens", `${count(tokens.prompt)} prompt, ${count(tokens.cached)} of them cached, ${count(tokens.output)} output`],
    ["Last selected", ago(w.last_selected)],
  ];
}
