import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { base } from "../../api/client";
import type { WorkerState } from "../../api/schema";
import { adminCurl } from "../../lib/curl";
import { ago, clock, count, millis, percent, plural, rate, seconds } from "../../lib/format";
import { Confirm, Dialog } from "../../ui/Dialog";
import { Problem } from "../../ui/Panel";
import { Badge, ChangeButton, Code, Curl, Field, toneOfWorker } from "../../ui/parts";
import { toast } from "../../ui/Toasts";
import { drain, refresh, removalQuery, resetWeight, undo, undrain } from "./changes";
import { breakerText, prefixHit, shareText } from "./weights";

/** WorkerDrawer shows everything about a worker, and drains it. */
export function WorkerDrawer({ worker: w, onClose }: { worker: WorkerState; onClose: () => void }) {
  return (
    <Dialog title={w.name} drawer onClose={onClose}>
      <div className="stack">
        <div className="row">
          <Badge tone={toneOfWorker(w.state)}>{w.state.replace("_", " ")}</Badge>
          {w.since && <span className="muted">since {clock(w.since)}</span>}
          <span className="grow" />
          <Link to="/decisions" search={{ worker: w.name }}>
            Decisions for it
          </Link>
          <Link to="/metrics">Metrics</Link>
        </div>
        {w.last_error && w.state !== "up" && <p className="note warn">{w.last_error}</p>}
        <Drain worker={w} />
        <OverrideOf worker={w} />
        <Facts worker={w} />
      </div>
    </Dialog>
  );
}

function Drain({ worker: w }: { worker: WorkerState }) {
  const [asking, ask] = useState(false);
  const end = useMutation({
    mutationFn: () => undrain(w.name),
    onSuccess: () => {
      refresh();
      toast(`${w.name} takes new requests again.`);
    },
  });
  return (
    <fieldset>
      <legend>Drain</legend>
      <div className="stack tight">
        {w.drain ? <Progress worker={w} /> : <p className="muted">A drained worker takes no new requests and finishes the current ones.</p>}
        <div className="row">
          {w.drain ? (
            <ChangeButton onClick={() => end.mutate()} disabled={end.isPending}>
              Undrain
            </ChangeButton>
          ) : (
            <ChangeButton onClick={() => ask(true)}>Drain…</ChangeButton>
          )}
        </div>
        {end.error && <Problem error={end.error} />}
        {asking && <DrainDialog worker={w} onClose={() => ask(false)} />}
      </div>
    </fieldset>
  );
}

/** Progress is the real progress of a drain: the requests that were in flight at its start, and those left. */
function Progress({ worker: w }: { worker: WorkerState }) {
  const d = w.drain!;
  const begun = d.inflight_at_start ?? d.inflight;
  if (d.inflight === 0) {
    return (
      <p role="status">
        <strong>Drained.</strong> No request is left; draining began {ago(d.since)}.
      </p>
    );
  }
  return (
    <div role="status">
      <progress max={Math.max(begun, d.inflight)} value={Math.max(begun - d.inflight, 0)} aria-label="Finished requests" />
      <p>
        {d.inflight} of {Math.max(begun, d.inflight)} requests left, draining since {ago(d.since)}
        {w.latency.count > 0 && `; 95 % of its requests take up to ${millis(w.latency.p95_ms)}`}.
        {d.overdue && <strong> The deadline has passed; requests are not cut.</strong>}
      </p>
    </div>
  );
}

const timeouts = [60, 300, 900, 3600];

function DrainDialog({ worker: w, onClose }: { worker: WorkerState; onClose: () => void }) {
  const [timeout, setTimeout] = useState(300);
  const removal = useQuery(removalQuery(w.name));
  const warnings = removal.data?.warnings ?? [];
  const alone = warnings.length > 0;
  const start = useMutation({
    mutationFn: () => drain(w.name, timeout),
    onSuccess: (answer) => {
      refresh();
      onClose();
      // The dialog has shown the warnings that were known.
      for (const text of answer.warnings ?? []) if (!warnings.includes(text)) toast(text);
    },
  });
  return (
    <Confirm
      title={`Drain ${w.name}`}
      action="Drain"
      danger={alone}
      pending={start.isPending || removal.isPending}
      onConfirm={() => start.mutate()}
      onClose={onClose}
    >
      <p>
        {w.name} has {plural(w.inflight, "request")} in flight, which it finishes.{" "}
        {alone ? "" : `Its ${shareText(w.distribution.expected)} of the new requests of ${w.pool} go to other workers.`}
      </p>
      {warnings.map((text) => (
        <p key={text} className="note warn">
          {text}
        </p>
      ))}
      {w.weights.override?.until && (
        <p className="note warn">A drain has no expiry: the weight {w.weights.override.weight}, which has one, is removed.</p>
      )}
      <Field label="Deadline" hint="The page shows if requests are left after it. Requests are never cut.">
        <select value={timeout} onChange={(e) => setTimeout(Number(e.target.value))}>
          {timeouts.map((s) => (
            <option key={s} value={s}>
              {seconds(s)}
            </option>
          ))}
        </select>
      </Field>
      {start.error && <Problem error={start.error} />}
      <Curl text={adminCurl(base, "POST", `admin/workers/${encodeURIComponent(w.name)}/drain`, { timeout_s: timeout })} />
    </Confirm>
  );
}

function OverrideOf({ worker: w }: { worker: WorkerState }) {
  const o = w.weights.override;
  const reset = useMutation({
    mutationFn: (from: WorkerState) => resetWeight(from),
    onSuccess: (answer, from) =>
      toast(
        `${from.name} has the weight ${from.weights.file} of config.yaml again.`,
        undo(from, answer.worker.weights.version),
      ),
    onError: refresh,
  });
  if (o?.weight === undefined) return null;
  return (
    <fieldset>
      <legend>Live override</legend>
      <div className="stack tight">
        <p>
          Weight {o.weight} instead of {w.weights.file}, set by {o.by} {ago(o.at)}
          {o.until ? `, ends ${ago(o.until)}` : ", until it is reset"}.
        </p>
        <Code text={`- { name: ${JSON.stringify(w.name)}, weight: ${o.weight} }`} label="Weight as YAML" />
        <div className="row">
          <ChangeButton onClick={() => reset.mutate(w)} disabled={reset.isPending}>
            Reset to file
          </ChangeButton>
        </div>
        {reset.error && <Problem error={reset.error} />}
      </div>
    </fieldset>
  );
}

type Fact = [string, React.ReactNode];

/** eventFacts shows how well the gateway knows the cache of a worker's engine. */
function eventFacts({ kv_events: e }: WorkerState): Fact[] {
  if (!e) return [["Events", "none"]];
  const facts: Fact[] = [
    ["Events", `${e.state}, ${count(e.streams)} ${e.streams === 1 ? "stream" : "streams"}, lag ${millis(e.lag_ms)}`],
    ["Blocks", `${count(e.blocks)}, each of ${count(e.block_size)} tokens; ${count(e.evicted_blocks)} evicted for lack of memory`],
    ["Gaps", `${count(e.gaps)}, ${count(e.replays)} replayed, ${count(e.failed_replays)} failed replays; last ${ago(e.last_gap)}`],
    ["Restarts", `${count(e.restarts)} of the engine, ${count(e.resets)} resets of the blocks`],
  ];
  return e.error ? [...facts, ["Events' error", e.error]] : facts;
}

function Facts({ worker: w }: { worker: WorkerState }) {
  const hit = prefixHit(w);
  const groups: [string, Fact[]][] = [
    [
      "Load",
      [
        ["In flight", `${count(w.inflight)} of this gateway, ${count(w.other_gateways_inflight)} of others`],
        ["Limit", w.bound ? `${count(w.bound)}${w.bound_learned ? ", learned" : ""}` : "none"],
        ["Tokens in flight", w.max_tokens_inflight ? `${count(w.tokens_inflight)} of ${count(w.max_tokens_inflight)}` : count(w.tokens_inflight)],
        ["Engine", w.metrics_stale ? "no current metrics" : `${count(w.engine_running)} running, ${count(w.engine_waiting)} waiting, KV cache ${percent(w.kv_usage)} used`],
        ["Effective weight", String(Number(w.effective_weight.toFixed(2)))],
      ],
    ],
    [
      "Breaker",
      [
        ["State", breakerText(w.breaker.state)],
        ["Cause", w.breaker.cause || "–"],
        ["Next probe", w.breaker.until ? ago(w.breaker.until) : "–"],
        ["Failures", `${count(w.breaker.failures)} of ${count(w.breaker.requests)} in the window, ${count(w.breaker.consecutive_failures)} in a row`],
        ["Slower than its peers", w.breaker.slow_ratio ? `${w.breaker.slow_ratio.toFixed(2)} ×` : "unknown"],
        ["Success ratio", percent(w.success_ratio)],
      ],
    ],
    [
      "Cache",
      [
        ["Prefix hits", `${percent(hit.share)} of ${count(w.totals.tokens.prompt)} prompt tokens`],
        ["Known from", hit.source === "events" ? "the engine's events" : "the routing history"],
        ...eventFacts(w),
        ["History", `${count(w.history_tokens)} tokens`],
      ],
    ],
    [
      "Learned",
      [
        ["Prefill", `${rate(w.learned.rate.value)} tokens/s from ${count(w.learned.rate.count)} requests`],
        ["Per output token", `${millis(1000 * w.learned.token_time.value)} from ${count(w.learned.token_time.count)} requests`],
        ["TTFT", w.ttft.count ? `mean ${millis(w.ttft.mean_ms)}, p95 ${millis(w.ttft.p95_ms)}, p99 ${millis(w.ttft.p99_ms)}` : "–"],
        ["Duration", w.latency.count ? `mean ${millis(w.latency.mean_ms)}, p95 ${millis(w.latency.p95_ms)}` : "–"],
      ],
    ],
    [
      "Worker",
      [
        ["Model", w.model || "as requested"],
        ["Further models", w.models.join(", ") || "none"],
        ["Region", w.region || "–"],
        ["Round trip", millis(w.round_trip_ms)],
        ["Last error", w.last_error || "none"],
        ["Requests", `${count(w.totals.requests.ok)} ok, ${count(w.totals.requests.error)} failed, ${count(w.totals.requests.excluded)} excluded`],
        ["Tokens", `${count(w.totals.tokens.prompt)} prompt, ${count(w.totals.tokens.cached)} of them cached, ${count(w.totals.tokens.output)} output`],
        ["Last selected", ago(w.last_selected)],
      ],
    ],
  ];
  return (
    <div className="columns">
      {groups.map(([title, facts]) => (
        <section key={title} className="stack tight">
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
      ))}
    </div>
  );
}
