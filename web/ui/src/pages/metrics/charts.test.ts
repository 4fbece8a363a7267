import { expect, test } from "vitest";
import type { AuditView, MetricsView } from "../../api/schema";
import { charts, chartsOf, linesOf, marksOf } from "./charts";

const view = {
  step_s: 1,
  t: [1, 2],
  series: [
    { name: "ttft_p50", labels: { tier: "small" }, unit: "ms", values: [10, null] },
    { name: "ttft_p95", labels: { tier: "small" }, unit: "ms", values: [20, 30] },
    { name: "ttft_p99", labels: { tier: "large" }, unit: "ms", values: [null, null] },
    { name: "requests", labels: { tier: "small", result: "refused" }, unit: "1/s", values: [0, 2] },
    { name: "requests", labels: { tier: "small", result: "client_gone" }, unit: "1/s", values: [1, null] },
    { name: "requests", labels: { tier: "none", result: "refused" }, unit: "1/s", values: [0, 1] },
    { name: "cpu", labels: {}, unit: "cores", values: [0.5, 0.25] },
  ],
} as unknown as MetricsView;

test("a chart shows its series and omits those without a value", () => {
  const ttft = charts.find((c) => c.series.includes("ttft_p50"))!;
  expect(linesOf(view, ttft, [])).toEqual([
    { name: "small p50", values: [10, null] },
    { name: "small p95", values: [20, 30] },
  ]);
  expect(linesOf(view, charts.find((c) => c.series.includes("requests"))!, ["small"]).map((l) => l.name)).toEqual([
    "small rejected",
    "small client gone",
    "no tier, rejected",
  ]);
  expect(linesOf(view, charts.find((c) => c.series.includes("cpu"))!, [])).toEqual([{ name: "all", values: [0.5, 0.25] }]);
});

test("cached tokens are a part of the prompt, so that the stack of tokens counts them once", () => {
  const tokens = (tier: string, kind: string, values: (number | null)[]) => ({ name: "tokens", labels: { tier, kind }, unit: "1/s", values });
  const series = [
    tokens("small", "prompt", [100, 50, null]),
    tokens("small", "cached", [80, null, 5]),
    tokens("small", "output", [7, 7, 7]),
    tokens("large", "prompt", [3, 3, 3]),
  ];
  const chart = charts.find((c) => c.series.includes("tokens"))!;
  const lines = linesOf({ ...view, series } as unknown as MetricsView, chart, []);
  expect(lines.map((l) => [l.name, l.values])).toEqual([
    ["small prompt, not cached", [20, 50, null]],
    ["small cached", [80, null, 5]],
    ["small output", [7, 7, 7]],
    ["large prompt, not cached", [3, 3, 3]],
  ]);
});

test("only successful changes of workers and configuration are marked", () => {
  const at = "2026-01-01T00:00:10Z";
  const entry = (action: string, outcome: string) => ({ action, outcome, at, target: "w" }) as AuditView;
  const entries = [entry("worker.override", "ok"), entry("worker.override", "refused"), entry("tenant.create", "ok")];
  expect(marksOf(entries, Date.parse(at) / 1000 - 5)).toEqual([{ at: Date.parse(at) / 1000, text: "weight of the file w" }]);
  expect(marksOf(entries, Date.parse(at) / 1000 + 5)).toEqual([]);
});

test("charts of parts that the gateway does not have are left out", () => {
  const calls = (result: string) => ({ name: "hook_calls", labels: { hook: "guard", result }, unit: "1/s", values: [1, 2] });
  const series = [calls("refused"), calls("rejected")] as unknown as MetricsView["series"];
  const more = chartsOf({ series }).filter((c) => !chartsOf({ series: [] }).includes(c));
  expect(more.map((c) => c.series)).toEqual([["hook_calls"]]);
  expect(charts.length - chartsOf({ series: [] }).length).toBe(4);
  expect(linesOf({ ...view, series }, more[0]!, []).map((l) => l.name)).toEqual(["guard refused", "guard rejected"]);
});
