import { expect, test } from "vitest";
import type { DecisionView } from "../../api/schema";
import { spansOf } from "./spans";

const d = (more: object) => ({ stream: true, overhead_ms: 1, queue_ms: 0, duration_ms: 100, ...more }) as DecisionView;
const text = (more: object) => spansOf(d(more)).map((s) => `${s.name} ${s.from}–${s.to}`);

test("a request has the phases gateway, queue, wait and answer", () => {
  const attempts = [{ worker: "w1", at_ms: 11, queue_ms: 10, duration_ms: 20, first_at_ms: 40, end_at_ms: 100 }];
  expect(text({ attempts })).toEqual(["Gateway 0–1", "Queue for w1 1–11", "w1: until the first token 11–40", "w1: answer 40–100"]);
});

test("failed attempts and requests without a worker have phases too", () => {
  const attempts = [
    { worker: "w1", at_ms: 1, duration_ms: 5, error: "status 503" },
    { worker: "w2", at_ms: 6, duration_ms: 20 },
  ];
  expect(text({ attempts })).toEqual(["Gateway 0–1", "w1: failed 1–6", "w2: until the first token 6–26"]);
  expect(text({ queue_ms: 50 })).toEqual(["Gateway 0–1", "Queue 1–51"]);
  expect(text({})).toEqual(["Gateway 0–1"]);
});

test("a whole answer has no time of a first token", () => {
  const attempts = [{ worker: "w1", at_ms: 1, duration_ms: 60, first_at_ms: 61, end_at_ms: 62 }];
  expect(text({ stream: undefined, attempts })).toEqual(["Gateway 0–1", "w1: answer 1–62"]);
});

test("a prompt that another worker computes is a phase of its own", () => {
  const prefills = [
    { worker: "p1", at_ms: 2, end_at_ms: 5, error_type: "connect" },
    { worker: "p2", at_ms: 5, end_at_ms: 30 },
  ];
  const attempts = [{ worker: "d1", at_ms: 1, duration_ms: 35, first_at_ms: 40, end_at_ms: 100, handover: { result: "remote", prefills, decode_at_ms: 31 } }];
  expect(text({ attempts })).toEqual(["Gateway 0–1", "p1: prefill 2–5", "p2: prefill 5–30", "d1: until the first token 31–40", "d1: answer 40–100"]);
});

test("hooks and the look-up of a kept answer are phases of their own", () => {
  const hooks = [
    { name: "redact", at_ms: 0.1, duration_ms: 3 },
    { name: "guard", at_ms: 3.1, duration_ms: 200, error: "no answer within 200ms" },
  ];
  const cache = { result: "miss", at_ms: 204, embedding_ms: 20, lookup_us: 1000 };
  expect(spansOf(d({ overhead_ms: 204, hooks, cache })).map((s) => [s.name, s.kind, s.from, s.to])).toEqual([
    ["Gateway", "gateway", 0, 204],
    ["Hook redact", "wait", 0.1, 3.1],
    ["Hook guard", "failed", 3.1, 203.1],
    ["Response cache", "wait", 204, 225],
  ]);
});
