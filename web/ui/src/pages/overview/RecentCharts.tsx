import { useMemo } from "react";
import { Chart } from "../../ui/Chart";
import { millis, rate } from "../../lib/format";
import { linesOf, type ChartOf } from "../metrics/charts";
import { useTierNames } from "../metrics/queries";
import type { Recent } from "./recent";

const charts: ChartOf[] = [
  { title: "Requests per second by tier and result", series: ["requests"], format: rate, stacked: true },
  { title: "Time to first token, p95", series: ["ttft_p95"], format: millis },
];

/** RecentCharts shows the rates and latencies of the last five minutes. */
export function RecentCharts({ recent }: { recent: Recent }) {
  const tiers = useTierNames();
  const all = useMemo(() => charts.map((c) => ({ ...c, lines: linesOf(recent, c, tiers) })), [recent, tiers]);
  return (
    <div className="charts">
      {all.map((c) => (
        <Chart
          key={c.title}
          title={c.title}
          times={recent.t}
          lines={c.lines}
          format={c.format}
          sync="overview"
          stacked={c.stacked}
          zero={c.stacked}
        />
      ))}
    </div>
  );
}
