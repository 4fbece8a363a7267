import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { LabelReport, TierReport as Report, TierUsage } from "../../api/schema";
import { count, money, percent, plural } from "../../lib/format";
import { Empty, Panel } from "../../ui/Panel";
import { orderOf } from "./curves";
import { QualityCurves } from "./QualityCurves";
import { tierReportQuery } from "./queries";

const periods = [7, 30, 90, 365];

/** TierReport shows the cost and the savings of the tiers, and the quality and the cost of other shares by the labels. */
export function TierReport() {
  const [days, setDays] = useState(30);
  const report = useQuery(tierReportQuery(days));
  return (
    <>
      <Panel
        title="Shares of the tiers, and their savings"
        query={report}
        live={false}
        actions={
          <select aria-label="Period" value={days} onChange={(e) => setDays(Number(e.target.value))}>
            {periods.map((n) => (
              <option key={n} value={n}>
                last {n} days
              </option>
            ))}
          </select>
        }
        empty={(r) => noUsage(r)}
      >
        {(r) => r.usage && <Savings of={r.usage} />}
      </Panel>
      <Panel title="Quality and cost by the share of the large tier" query={report} live={false} empty={(r) => noLabels(r)}>
        {(r) => r.labels && <Labels of={r.labels} />}
      </Panel>
    </>
  );
}

function noUsage(r: Report) {
  if (!r.usage) {
    return (
      <Empty>
        <strong>No database.</strong> Set <code>store.sql</code> to record the usage of the tiers.
      </Empty>
    );
  }
  return (
    r.usage.requests === 0 && (
      <Empty>
        <strong>No requests of a tier in this period.</strong> Requests appear here a few seconds after they end.
      </Empty>
    )
  );
}

function noLabels(r: Report) {
  return (
    !r.labels && (
      <Empty>
        {r.labels_problem ? (
          <>
            <strong>No report.</strong> {r.labels_problem}
          </>
        ) : (
          <>
            <strong>No labels.</strong> Set <code>learning.directory</code> to collect labels of answers, which show the quality of
            other shares. <code>tierway tiers report</code> reads labels from files.
          </>
        )}
      </Empty>
    )
  );
}

function Savings({ of: u }: { of: TierUsage }) {
  const atLast = u.money_at_last_tier ?? 0;
  return (
    <div className="stack body">
      <p>
        {atLast > 0 ? (
          <>
            <strong>{money(u.saved)}</strong> saved of {money(atLast)} ({percent((u.saved ?? 0) / atLast, 1)}) against
            sending all requests to {u.last_tier}.
          </>
        ) : (
          <>The savings are unknown: {u.last_tier} has no price.</>
        )}
      </p>
      <div className="table">
        <table aria-label="Tiers">
          <thead>
            <tr>
              <th scope="col">Tier</th>
              {["Requests", "Share", "Prompt tokens", "Answer tokens", "Cost", `At the price of ${u.last_tier}`].map((h) => (
                <th key={h} scope="col" className="num">
                  {h}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {u.tiers.map((t) => (
              <tr key={t.tier}>
                <td>{t.tier}</td>
                <td className="num">{count(t.requests)}</td>
                <td className="num">{percent(t.share, 1)}</td>
                <td className="num">{count(t.prompt_tokens)}</td>
                <td className="num">{count(t.output_tokens)}</td>
                <td className="num">{money(t.money)}</td>
                <td className="num">{money(t.money_at_last_tier)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p className="muted">{u.assumption}</p>
    </div>
  );
}

function Labels({ of: r }: { of: LabelReport }) {
  const cost = r.money?.points;
  return (
    <div className="stack body">
      <p>
        {plural(r.evaluated, "request")} with labels of replay or exploration.{" "}
        {percent(r.requests ? r.paired / r.requests : 0, 1)} of all labelled requests have labels of both tiers.
        {r.in_sample && " The model may have been trained on these requests, so its curve is too good."}
      </p>
      <QualityCurves of={r} />
      <div className="table">
        <table aria-label="Right answers by the share of the large tier">
          <thead>
            <tr>
              <th scope="col">At {r.large_tier}</th>
              <th scope="col" className="num">
                Score above
              </th>
              {r.curves.map((c) => (
                <th key={c.name} scope="col" className="num">
                  {orderOf(c)}
                </th>
              ))}
              {cost && (
                <th scope="col" className="num">
                  Cost
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {r.curves[0]?.points.map((p, i) => (
              <tr key={p.share}>
                <td>{percent(p.share)}</td>
                <td className="num">{p.threshold?.toFixed(3) ?? "any"}</td>
                {r.curves.map((c) => {
                  const q = c.points[i]?.quality;
                  return (
                    <td key={c.name} className="num" title={q && `95 % interval ${percent(q.low, 1)} to ${percent(q.high, 1)}`}>
                      {percent(q?.value, 1)}
                    </td>
                  );
                })}
                {cost && <td className="num">{money(cost[i]?.money)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {r.money && (
        <p className="muted">
          The cost is that of 1,000 requests with {count(r.money.prompt_tokens)} tokens of the prompt and {count(r.money.output_tokens)} of
          the answer each, at either tier and any score.
        </p>
      )}
    </div>
  );
}
