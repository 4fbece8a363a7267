import type { AuditView, MetricsView } from "../../api/schema";
import { overrideText, targetText } from "../../lib/audit";
import { bytes, count, millis, percent, rate, resultText, seconds } from "../../lib/format";
import type { Mark } from "../../ui/Chart";
import { resultStyle } from "../../ui/colours";
import type { Line } from "../../ui/lines";

/** ChartOf describes one chart: the series that it shows, and how. */
export interface ChartOf {
  title: string;
  /** Names of the series of GET /admin/metrics. */
  series: string[];
  format: (v: number | null) => string;
  stacked?: boolean;
  /** Lines that are always 0 are omitted, as stacked ones are. */
  whole?: boolean;
  /** The chart is of a part that most gateways do not have: without a series it is left out. */
  part?: boolean;
}

const cores = (v: number | null) => (v === null ? "–" : v.toFixed(2));
const breaker = (v: number | null) => (v === null ? "–" : (["closed", "half open", "open"][v] ?? ""));

/** charts are the charts of the page in their order. */
export const charts: ChartOf[] = [
  { title: "Requests per second by tier and result", series: ["requests"], format: rate, stacked: true },
  { title: "Time to first token", series: ["ttft_p50", "ttft_p95", "ttft_p99"], format: millis },
  { title: "Queue by tier and class", series: ["queue_waiting"], format: count, stacked: true },
  { title: "Oldest waiting request", series: ["queue_oldest"], format: seconds, whole: true },
  { title: "In-flight requests by worker", series: ["worker_inflight"], format: count, stacked: true },
  { title: "Prefix hits by worker", series: ["prefix_hit"], format: percent },
  { title: "Circuit breakers by worker", series: ["breaker"], format: breaker },
  { title: "Rejected by limits, per second and tenant", series: ["limited"], format: rate, stacked: true },
  { title: "Tokens per second", series: ["tokens"], format: rate, stacked: true },
  { title: "Response cache results per second", series: ["response_cache"], format: rate, stacked: true, part: true },
  { title: "Hook results per second", series: ["hook_calls"], format: rate, stacked: true, part: true },
  { title: "Duration of hook calls", series: ["hook_p50", "hook_p95"], format: millis, part: true },
  { title: "LMCache look-ups per second", series: ["lmcache_lookups"], format: rate, stacked: true, part: true },
  { title: "Gateway's own time per request", series: ["overhead_p50", "overhead_p99"], format: millis },
  { title: "CPU cores", series: ["cpu"], format: cores },
  { title: "Memory", series: ["memory"], format: bytes },
];

/** chartsOf returns the charts without those of parts that have no series. */
export function chartsOf({ series }: Pick<MetricsView, "series">): ChartOf[] {
  return charts.filter((c) => !c.part || series.some((s) => c.series.includes(s.name)));
}

/**
 * linesOf returns the lines of a chart; series without any value, and counts that are always 0, are omitted. tiers: names
 * of the tiers in their order, by which they have their colours.
 */
export function linesOf(metrics: MetricsView, chart: ChartOf, tiers: string[]): Line[] {
  const several = chart.series.length > 1;
  return disjoint(metrics.series)
    .filter((s) => chart.series.includes(s.name) && s.values.some((v) => v !== null && (!(chart.stacked || chart.whole) || v !== 0)))
    .map((s) => ({
      name: nameOf(s.labels, several ? (s.name.split("_").at(-1) ?? "") : ""),
      values: s.values,
      ...(s.name === "requests" && { style: resultStyle(tiers.indexOf(s.labels.tier ?? ""), s.labels.result ?? "") }),
    }));
}

/** disjoint returns the series with the prompt tokens that were not cached: the sum of stacked lines counts each once. */
function disjoint(series: MetricsView["series"]): MetricsView["series"] {
  const cached = new Map(series.filter((s) => s.name === "tokens" && s.labels.kind === "cached").map((s) => [s.labels.tier, s]));
  return series.map((s) => {
    if (s.name !== "tokens" || s.labels.kind !== "prompt") return s;
    const part = cached.get(s.labels.tier)?.values;
    return {
      ...s,
      labels: { ...s.labels, kind: "prompt, not cached" },
      values: s.values.map((v, i) => (v === null ? null : Math.max(0, v - (part?.[i] ?? 0)))),
    };
  });
}

/** A worker's name says its tier in most fleets, so that a line has only the more specific name. */
const labelOrder = ["tenant", "worker", "tier", "class", "hook", "kind", "result"];

// Results of hooks keep their words: refused is an invalid change of the service, rejected its decision.
function nameOf(labels: Record<string, string>, suffix: string): string {
  const shown = labelOrder.filter((l) => labels[l] && !(l === "tier" && labels.worker)).map((l) => (labels.hook ? labels[l]! : labelText(l, labels[l]!)));
  return [...shown, suffix].filter(Boolean).join(" ") || "all";
}

function labelText(label: string, value: string): string {
  if (label === "result") return resultText(value);
  return label === "tier" && value === "none" ? "no tier," : value;
}

const marked = /^(config\.reload|worker\.)/;

/** marksOf returns the changes that may explain a change of a chart, oldest first. */
export function marksOf(entries: AuditView[], from: number): Mark[] {
  return entries
    .filter((e) => marked.test(e.action) && e.outcome === "ok")
    .map((e) => ({ at: new Date(e.at).getTime() / 1000, text: `${overrideText(e) ?? e.action} ${targetText(e)}`.trim() }))
    .filter((m) => m.at >= from)
    .reverse();
}
