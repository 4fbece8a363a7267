import { expect, test, vi } from "vitest";
import type { WorkerState } from "../../api/schema";
import { prefixHit, restoreOf, Throttle, weightOf } from "./weights";

const now = Date.UTC(2026, 0, 1);
const withOverride = (override?: object) => ({ weights: { effective: 1, file: 1, version: 1, override } }) as unknown as WorkerState;

test("an undo brings back the override as it was", () => {
  expect(restoreOf(withOverride(), now)).toEqual({ kind: "reset" });
  expect(restoreOf(withOverride({ weight: 7 }), now)).toEqual({ kind: "weight", weight: 7 });
  const until = new Date(now + 90_500).toISOString();
  expect(restoreOf(withOverride({ weight: 0, until }), now)).toEqual({ kind: "weight", weight: 0, ttl_s: 90 });
  expect(restoreOf(withOverride({ weight: 7, until: new Date(now).toISOString() }), now)).toEqual({ kind: "reset" });
  expect(restoreOf(withOverride({ drain: true }), now)).toEqual({ kind: "weight", weight: null });
});

test("a weight is a whole number from 0 to 100", () => {
  expect([weightOf("0"), weightOf(" 100 "), weightOf("7")]).toEqual([0, 100, 7]);
  for (const bad of ["", "-1", "101", "1.5", "x", "1e2"]) expect(weightOf(bad), bad).toBeUndefined();
});

test("a throttle sends the first and the last value, and few between", () => {
  vi.useFakeTimers();
  const sent: number[] = [];
  const t = new Throttle<number>(200, (n) => sent.push(n));
  for (let i = 0; i < 50; i++) {
    t.call(i);
    vi.advanceTimersByTime(10);
  }
  vi.advanceTimersByTime(500);
  expect(sent[0]).toBe(0);
  expect(sent.at(-1)).toBe(49);
  expect(sent.length).toBeLessThanOrEqual(4);
  t.call(1);
  t.call(2);
  t.cancel();
  vi.advanceTimersByTime(500);
  expect(sent.at(-1)).toBe(1);
  vi.useRealTimers();
});

test("a worker without prompts has no hit rate", () => {
  const tokens = (prompt: number, cached: number) => ({ totals: { tokens: { prompt, cached, output: 0 } } }) as unknown as WorkerState;
  expect(prefixHit(tokens(0, 0)).share).toBeUndefined();
  expect(prefixHit(tokens(200, 50))).toEqual({ share: 0.25, source: "history" });
});
