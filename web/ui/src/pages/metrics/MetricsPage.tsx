import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import type { MetricsView } from "../../api/schema";
import { clock, plural } from "../../lib/format";
import { PageTitle } from "../../shell/Shell";
import { Chart, type Mark } from "../../ui/Chart";
import { Panel } from "../../ui/Panel";
import { Tabs } from "../../ui/Tabs";
import { chartsOf, linesOf, marksOf } from "./charts";
import { metricsQuery, useTierNames, rangeOf, ranges, recentAuditQuery } from "./queries";

const route = getRouteApi("/shell/metrics");

/** MetricsPage shows charts from the gateway's own history. It needs no Prometheus. */
export function MetricsPage() {
  const range = rangeOf(route.useSearch().range);
  const metrics = useQuery(metricsQuery(range));
  const audit = useQuery(recentAuditQuery);
  const from = metrics.data?.t[0] ?? 0;
  const marks = useMemo(() => marksOf(audit.data ?? [], from), [audit.data, from]);
  return (
    <>
      <PageTitle note="From the memory of this gateway. For longer periods and several gateways, scrape /metrics with Prometheus.">
        Metrics
      </PageTitle>
      <Tabs label="Period" to="/metrics" param="range" items={ranges} current={range} />
      <Panel query={metrics} rows={8}>
        {(m) => <Charts metrics={m} marks={marks} />}
      </Panel>
    </>
  );
}

function Charts({ metrics, marks }: { metrics: MetricsView; marks: Mark[] }) {
  const tiers = useTierNames();
  const all = useMemo(() => chartsOf(metrics).map((c) => ({ ...c, lines: linesOf(metrics, c, tiers) })), [metrics, tiers]);
  return (
    <div className="charts">
      {metrics.omitted > 0 && (
        <p className="note warn">
          {metrics.omitted} series are left out: the history has no room for so many workers and tenants. Use Prometheus.
        </p>
      )}
      {marks.length > 0 && (
        <details className="marks muted small" open={marks.length <= 6}>
          <summary>Dashed lines: {plural(marks.length, "change")}</summary>
          {marks.map((m) => `${clock(m.at * 1000)} ${m.text}`).join("; ")}
        </details>
      )}
      {all.map((c) => (
        <Chart
          key={c.title}
          title={c.title}
          times={metrics.t}
          lines={c.lines}
          format={c.format}
          marks={marks}
          sync="metrics"
          stacked={c.stacked}
          zero={c.stacked || c.whole}
        />
      ))}
    </div>
  );
}
