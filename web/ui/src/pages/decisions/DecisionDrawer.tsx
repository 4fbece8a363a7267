import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Fragment, type ReactNode } from "react";
import { base } from "../../api/client";
import type { Attempt, DecisionView, Excluded } from "../../api/schema";
import { adminCurl } from "../../lib/curl";
import { count, millis, UNKNOWN } from "../../lib/format";
import { promptText } from "../../lib/handover";
import { codedText, reasonText, rejectionText, ruleText } from "../../lib/reasons";
import { Dialog } from "../../ui/Dialog";
import { Problem, Skeleton } from "../../ui/Panel";
import { Badge, CopyButton, Curl } from "../../ui/parts";
import { Candidates } from "../rules/Candidates";
import { HandoverView, RetriedPrefills } from "../rules/HandoverView";
import { limitUsesOf } from "./limitUses";
import { decisionQuery, tenantQuery } from "./queries";
import { prefixOf, tokensOf, toneOf, triedBefore, triesOf } from "./rows";
import { cacheText, hookText, isKept } from "./stages";
import { Waterfall } from "./Waterfall";

/** DecisionDrawer shows the whole record of a request. */
export function DecisionDrawer({ id, onClose }: { id: string; onClose: () => void }) {
  const record = useQuery(decisionQuery(id));
  return (
    <Dialog title={`Request ${id}`} drawer onClose={onClose}>
      {record.error && <Problem error={record.error} retry={() => void record.refetch()} />}
      {record.isPending && <Skeleton rows={8} />}
      {record.data && <Record of={record.data} />}
    </Dialog>
  );
}

function Record({ of: d }: { of: DecisionView }) {
  const limited = Boolean(d.limit && d.tenant);
  const tenant = useQuery({ ...tenantQuery(d.tenant ?? ""), enabled: limited });
  const why = d.outcome === "ok" ? undefined : rejectionText({ ...d, uses: limitUsesOf(d, tenant.data) });
  return (
    <div className="stack">
      <div className="row">
        <Badge tone={toneOf(d.outcome)}>
          {d.status} {reasonText("outcome", d.outcome)}
        </Badge>
        {d.code && <code>{d.code}</code>}
        <span className="grow" />
        <Link to="/rules" search={{ decision: d.request_id }} className="button">
          Explain
        </Link>
        {d.trace_url && (
          <a className="button" href={d.trace_url} target="_blank" rel="noreferrer">
            Trace
          </a>
        )}
        <CopyButton text={d.request_id} label="Copy id" />
        <CopyButton text={JSON.stringify(d, null, 2)} label="Copy JSON" />
      </div>
      {why && (
        <p>
          <strong>{why}</strong>{" "}
          {limited && (
            <Link to="/tenants" search={{ tenant: d.tenant }}>
              Limits of {d.tenant}
            </Link>
          )}
        </p>
      )}
      <p>{sentenceOf(d)}</p>
      {d.cause && <p className="note err cause">{d.cause}</p>}
      <Waterfall of={d} />
      {(d.attempts ?? []).map((a, i) => (
        <AttemptView key={i} attempt={a} number={i + 1} good={triesOf(d)[i]!.good} tried={triedBefore(d, i)} />
      ))}
      {d.refused_choice && (
        <section className="stack tight">
          <h3>Last selection, without a worker</h3>
          <Candidates
            of={{ candidates: d.refused_choice.candidates, policy: d.refused_choice.policy }}
            others={triedBefore(d, (d.attempts ?? []).length)}
          />
        </section>
      )}
      {d.tier && (d.attempts?.length || d.refused_choice) && (
        <p className="small muted">
          A record has the candidates of each selection. It does not have the workers of {d.tier} that were down, drained,
          ejected or in backoff: <Link to="/workers" search={{ pool: d.tier }}>their present state</Link>.
        </p>
      )}
      <Facts of={d} />
      <Curl text={adminCurl(base, "GET", `admin/decisions/${encodeURIComponent(d.request_id)}`)} />
    </div>
  );
}

function sentenceOf(d: DecisionView): string {
  const caller = `${d.tenant ? `Tenant ${d.tenant}` : "No tenant"}${d.class ? `, class ${d.class}` : ""}`;
  const rule = d.rule ? `${d.rule} (${ruleText(d.rule)})` : UNKNOWN;
  const tier = d.tier ? `${d.requested_model || "no model"} → ${d.tier} by the rule ${rule}` : d.requested_model;
  const worker = d.worker ? `${d.worker} by ${d.policy || "no policy"}${d.reason ? ` (${codedText("worker", d.reason)})` : ""}` : isKept(d) ? "answered from the response cache" : "no worker";
  return `${[caller, tier, worker].filter(Boolean).join("; ")}.`;
}

interface AttemptProps {
  attempt: Attempt;
  number: number;
  good: boolean;
  /** Workers that were tried before, and so were no candidates. */
  tried: Excluded[];
}

function AttemptView({ attempt: a, number, good, tried }: AttemptProps) {
  const choice = a.choice;
  const kept = choice?.candidates?.length ?? 0;
  const prompt = promptText(a);
  return (
    <section className="stack tight attempt">
      <h3>
        Attempt {number}:{" "}
        <Link to="/workers" search={{ worker: a.worker }}>
          {a.worker}
        </Link>{" "}
        <Badge tone={good ? "ok" : "err"}>{a.error || (a.status ? String(a.status) : good ? "answered" : "failed")}</Badge>
      </h3>
      <p className="small muted">
        Selected after {millis(a.at_ms)}
        {a.queue_ms ? ` (${millis(a.queue_ms)} in the queue)` : ""}
        {a.selection_us ? `, in ${Math.round(a.selection_us)} µs` : ""}; {count(a.predicted_cached_tokens)} cached tokens expected
        {a.usage && a.usage.prompt > 0 && `, ${count(a.usage.cached)} of ${count(a.usage.prompt)} reported`}.
      </p>
      {prompt && <p className="small">Prompt: {prompt}.</p>}
      {choice && kept > 0 ? (
        <>
          <Candidates of={{ candidates: choice.candidates, worker: a.worker, policy: choice.policy, reason: a.reason }} others={tried} />
          {choice.seen > kept && (
            <p className="small muted">
              The record has {count(kept)} of {count(choice.seen)} candidates.
            </p>
          )}
        </>
      ) : (
        <p className="small">{codedText("worker", a.reason)}. The record has no candidates: the worker was the only one, or the gateway did not record its selection.</p>
      )}
      {choice?.handover && <HandoverView of={choice.handover} />}
      <RetriedPrefills of={a} />
    </section>
  );
}

function Facts({ of: d }: { of: DecisionView }) {
  return (
    <section className="stack tight">
      <h3>Record</h3>
      <dl className="facts">
        {factsOf(d).map(([name, value]) => (
          <Fragment key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </Fragment>
        ))}
      </dl>
    </section>
  );
}

type Fact = [name: string, value: ReactNode];

/** factsOf returns the parts of a record that it has. */
function factsOf(d: DecisionView): Fact[] {
  const f = d.features ?? {};
  const moves = (d.passed_over ?? []).map((m) => `${m.tier}${m.why ? ` (${m.why})` : ""}`).join(", ");
  const all: [string, ReactNode | undefined][] = [
    ["Time", d.time],
    ["Endpoint", `${d.method} ${d.route}${d.stream ? ", stream" : ""}`],
    ["Key", d.key ?? (d.key_hint && <UnknownKey hint={d.key_hint} />)],
    ["Client address", d.client_ip],
    ["Requested class", d.asked_class && `${d.asked_class}, which the caller may not use`],
    ["Promoted", d.promoted && "dispatched as the class above after its wait limit"],
    ["Model of the worker", d.model],
    ["Requested tier", f.header],
    ["Rule", d.rule && `${d.rule}${d.rule_note ? `; ${d.rule_note}` : ""}`],
    ["Passed over", moves],
    ["Limit", d.limit && codedText("limit", d.limit)],
    ["Queue", d.shed && `rejected by ${codedText("shed", d.shed)}`],
    ["Error", d.code && (d.limit ? d.code : codedText("error", d.code))],
    ["Tokens", `${tokensOf(d)}${d.max_tokens ? `, max_tokens ${count(d.max_tokens)}` : ""}`],
    ["Usage report", d.usage_note && codedText("usage", d.usage_note)],
    ["Cached prefix", prefixOf(d)],
    ...(d.hooks ?? []).map((h): Fact => [`Hook ${h.name}`, hookText(h)]),
    ["Response cache", d.cache && cacheText(d.cache)],
    ["Classifier", classifierOf(d)],
    ["Session", f.session && <code>{f.session}</code>],
    ["Blocks of the prompt", f.blocks && count(f.blocks)],
    ["Trace", d.trace_id && <code>{d.trace_id}</code>],
    ["Configuration", `generation ${d.config_generation}`],
  ];
  return all.filter((x): x is Fact => Boolean(x[1]));
}

/** UnknownKey shows the part of a refused key by which a known key is found. */
function UnknownKey({ hint }: { hint: string }) {
  return (
    <>
      <code>{hint}</code> is unknown, expired or revoked; <Link to="/tenants" search={{ q: hint }}>search the tenants for it</Link>
    </>
  );
}

function classifierOf(d: DecisionView): string | undefined {
  const f = d.features;
  if (!f?.classified) return undefined;
  return [
    f.counted_tokens ? `${count(f.counted_tokens)} tokens counted` : `${count(f.estimated_tokens)} tokens estimated`,
    f.groups?.length ? `keyword groups ${f.groups.join(", ")}` : "no keyword group",
    f.tools ? "tools" : "",
    f.media ? "images, audio or files" : "",
  ]
    .filter(Boolean)
    .join("; ");
}
