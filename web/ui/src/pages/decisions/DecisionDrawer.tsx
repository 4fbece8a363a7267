import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { DecisionView } from "../../api/schema";
import { count, millis, percent } from "../../lib/format";
import { Dialog } from "../../ui/Dialog";
import { Panel } from "../../ui/Panel";
import { CopyButton } from "../../ui/parts";
import { Candidates } from "../rules/Candidates";
import { decisionQuery } from "./queries";
import { cachedShare, waterfallOf } from "./rows";

/** DecisionDrawer shows everything that is recorded about one request. */
export function DecisionDrawer({ id, onClose }: { id: string; onClose: () => void }) {
  const decision = useQuery(decisionQuery(id));
  return (
    <Dialog title="Request" drawer onClose={onClose}>
      <div className="stack">
        <div className="row">
          <code>{id}</code> <CopyButton text={id} label="Copy id" />
          <span className="grow" />
          <Link to="/rules" search={{ tab: "playground", decision: id }} className="button">
            Explain
          </Link>
          {decision.data?.trace_url && (
            <a href={decision.data.trace_url} target="_blank" rel="noreferrer" className="button">
              Trace
            </a>
          )}
        </div>
        <Panel query={decision}>{(d) => <Details of={d} />}</Panel>
      </div>
    </Dialog>
  );
}

function Details({ of: d }: { of: DecisionView }) {
  const facts: [string, React.ReactNode][] = [
    ["Time", new Date(d.time).toISOString()],
    ["Request", `${d.method} ${d.route}${d.stream ? ", streamed" : ""}`],
    ["Tenant and key", [d.tenant, d.key].filter(Boolean).join(", ") || "–"],
    ["Model", `${d.requested_model ?? "–"} → ${d.model ?? "–"}`],
    ["Tier", d.tier ? `${d.tier} by the rule ${d.rule}${d.rule_note ? ` (${d.rule_note})` : ""}` : "–"],
    ["Priority", `${d.class ?? "–"}${d.promoted ? ", promoted" : ""}`],
    ["Worker", d.worker ? `${d.worker} by ${d.policy}: ${d.reason}` : "–"],
    ["Result", `${d.outcome.replace("_", " ")}, status ${d.status}${d.code ? `, ${d.code}` : ""}`],
    ["Cause", d.cause ?? "–"],
    ["Times", `queue ${millis(d.queue_ms)}, TTFT ${millis(d.ttft_ms)}, total ${millis(d.duration_ms)}, gateway ${millis(d.overhead_ms)}`],
    [
      "Tokens",
      d.usage
        ? `${count(d.usage.prompt)} prompt (${percent(cachedShare(d))} cached), ${count(d.usage.output)} output${d.estimated ? ", estimated" : ""}`
        : "–",
    ],
    ["Limit", d.limit ?? "–"],
    ["Generation", String(d.config_generation)],
  ];
  return (
    <div className="stack body padded">
      <dl className="facts">
        {facts.map(([name, value]) => (
          <div key={name} className="contents">
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <Waterfall of={d} />
      {(d.attempts ?? []).map((a, i) => (
        <section key={i} className="stack tight">
          <h3>
            Attempt {i + 1}: {a.worker} {a.status && <code>{a.status}</code>} {a.error && <span className="bad">{a.error}</span>}
          </h3>
          {a.choice && <Candidates of={{ ...a.choice, worker: a.worker, reason: a.reason }} />}
        </section>
      ))}
      {d.refused_choice && <Candidates of={{ ...d.refused_choice, reason: "no worker was free" }} />}
    </div>
  );
}

function Waterfall({ of: d }: { of: DecisionView }) {
  const bars = waterfallOf(d);
  const total = Math.max(d.duration_ms, ...bars.map((b) => b.to), 1);
  if (bars.length === 0) return null;
  return (
    <table className="waterfall" aria-label="Time line">
      <tbody>
        {bars.map((b, i) => (
          <tr key={i}>
            <th scope="row">{b.name}</th>
            <td className="line">
              <i
                className={b.kind}
                style={{ marginLeft: `${(b.from / total) * 100}%`, width: `${Math.max(((b.to - b.from) / total) * 100, 0.5)}%` }}
              />
            </td>
            <td className="num">{millis(b.to - b.from)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
