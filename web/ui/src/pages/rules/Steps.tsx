import type { Step } from "../../api/schema";
import { count, millis } from "../../lib/format";
import { Badge } from "../../ui/parts";

const stages: Record<Step["stage"], string> = {
  auth: "Tenant and key",
  request: "Request",
  tier: "Tier",
  limits: "Limits",
  queue: "Queue",
  worker: "Worker",
};

/** Steps shows the stages of a request in their order, up to the one that rejects it. */
export function Steps({ steps }: { steps: Step[] }) {
  return (
    <ol className="ladder">
      {steps.map((s, i) => (
        <li key={i}>
          <Badge tone={s.ok ? "ok" : "err"}>{stages[s.stage]}</Badge>
          <span>
            {s.detail}
            <Details of={s} />
          </span>
        </li>
      ))}
    </ol>
  );
}

/** Details shows what a step has besides its sentence. */
function Details({ of: s }: { of: Step }) {
  const lines = [
    ...(s.tier?.moves ?? []).map((m) => `${m.tier} was passed over${m.why ? `: ${m.why}` : ""}`),
    ...(s.limits ?? []).map((l) => `${l.scope} ${l.limit}: ${count(l.used)} of ${count(l.room)} used${l.would_use ? `, this request ${count(l.would_use)}` : ""}`),
    ...(s.worker?.handover_text ? [s.worker.handover_text] : []),
    ...(s.queue?.would === "wait" ? [`estimated wait ${millis(s.queue.estimated_wait_ms)}, up to ${count(s.queue.ahead)} requests ahead`] : []),
  ];
  return lines.map((text) => (
    <small key={text} className="muted detail">
      {text}
    </small>
  ));
}
