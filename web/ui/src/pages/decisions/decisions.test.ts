import { expect, test } from "vitest";
import type { DecisionView } from "../../api/schema";
import { filterOf, matches, queryOf } from "./filter";
import { cachedShare, hopsOf, joined, rowHeight, waterfallOf, windowOf } from "./rows";

const d = (more: object = {}) =>
  ({
    seq: 1,
    request_id: "ABC-1",
    time: "2026-01-01T00:00:10Z",
    tenant: "acme",
    tier: "small",
    model: "qwen",
    requested_model: "auto",
    outcome: "ok",
    status: 200,
    class: "batch",
    worker: "w2",
    reason: "prefix",
    queue_ms: 0,
    duration_ms: 100,
    attempts: [
      { worker: "w1", reason: "load", at_ms: 5, duration_ms: 20, status: 503 },
      { worker: "w2", reason: "prefix", at_ms: 30, first_at_ms: 60, end_at_ms: 100, duration_ms: 70, status: 200 },
    ],
    ...more,
  }) as unknown as DecisionView;

test("a live row is filtered as the gateway filters", () => {
  for (const f of [{}, { tenant: "acme" }, { worker: "w1" }, { worker: "w1", reason: "load" }, { model: "auto" }, { model: "qwen" }, { status: "200" }, { q: "abc" }, { q: "W1" }, { since: "2026-01-01T00:00:10Z" }]) {
    expect(matches(f, d()), JSON.stringify(f)).toBe(true);
  }
  for (const f of [{ tenant: "x" }, { worker: "w1", reason: "prefix" }, { model: "llama" }, { status: "500" }, { q: "zzz" }, { until: "2026-01-01T00:00:10Z" }, { class: "interactive" }]) {
    expect(matches(f, d()), JSON.stringify(f)).toBe(false);
  }
  expect(matches({ worker: "w9" }, d({ attempts: [], worker: "w9" }))).toBe(true);
});

test("only the filters of the page become its query", () => {
  expect(filterOf({ tenant: "a", id: "x", q: "" })).toEqual({ tenant: "a" });
  expect(queryOf({ status: "429", tier: "small" })).toEqual({ status: 429, tier: "small" });
});

test("the chain of attempts shows what failed", () => {
  expect(hopsOf(d())).toEqual([
    { worker: "w1", failed: "503" },
    { worker: "w2", failed: undefined },
  ]);
  expect(hopsOf(d({ outcome: "failed", attempts: [{ worker: "w1", error_type: "timeout" }] }))).toEqual([{ worker: "w1", failed: "timeout" }]);
  expect(hopsOf(d({ attempts: undefined }))).toEqual([]);
});

test("the drawn rows cover the visible part and few more", () => {
  expect(windowOf(0, 0, 600)).toEqual({ from: 0, to: 0 });
  expect(windowOf(5000, 0, 600).from).toBe(0);
  const w = windowOf(5000, 1000 * rowHeight, 600);
  expect(w.from).toBeLessThanOrEqual(1000);
  expect(w.to).toBeGreaterThanOrEqual(1000 + Math.ceil(600 / rowHeight));
  expect(w.to - w.from).toBeLessThan(60);
  expect(windowOf(10, 1e9, 600)).toEqual({ from: 0, to: 10 });
});

test("live and fetched rows have no repeats", () => {
  const rows = (...seqs: number[]) => seqs.map((seq) => d({ seq }));
  expect(joined(rows(9, 8, 7), rows(8, 7, 6, 5)).map((x) => x.seq)).toEqual([9, 8, 7, 6, 5]);
  expect(joined([], rows(2, 1)).map((x) => x.seq)).toEqual([2, 1]);
});

test("the waterfall has the queue, each wait and the answer", () => {
  const bars = waterfallOf(d({ queue_ms: 3, attempts: d().attempts }));
  expect(bars).toEqual([
    { name: "queue", from: 2, to: 5, kind: "queue" },
    { name: "w1: first token", from: 5, to: 25, kind: "wait" },
    { name: "w2: first token", from: 30, to: 60, kind: "wait" },
    { name: "w2: answer", from: 60, to: 100, kind: "stream" },
  ]);
});

test("a request without tokens has no cached share", () => {
  expect(cachedShare(d())).toBeUndefined();
  expect(cachedShare(d({ usage: { prompt: 200, cached: 50 } }))).toBe(0.25);
});
