import { expect, test, vi } from "vitest";
import type { WorkerState } from "../../api/schema";
import {
  ageText,
  changeOf,
  changeTo,
  configuredWeight,
  failureText,
  ignoresWeights,
  isKept,
  prefixHit,
  restoreOf,
  roleText,
  shareTitle,
  shareText,
  shownPools,
  sinceOf,
  Throttle,
  weightOf,
} from "./weights";

const now = Date.UTC(2026, 0, 1);
const withOverride = (override?: object) => ({ weights: { effective: 1, file: 1, version: 1, override } }) as unknown as WorkerState;

test("an undo brings back the override as it was", () => {
  const undo = (override: object | undefined, at: number) => changeOf(restoreOf(withOverride(override)), at);
  const until = new Date(now + 90_000).toISOString();
  expect(undo(undefined, now)).toEqual({ weight: null });
  expect(undo({ weight: 7 }, now)).toEqual({ weight: 7 });
  expect(undo({ weight: 0, until }, now)).toEqual({ weight: 0, ttl_s: 90 });
  expect(undo({ weight: 0, until }, now + 10_000)).toEqual({ weight: 0, ttl_s: 80 });
  expect(undo({ weight: 7, until }, now + 90_000)).toEqual({ weight: null });
  expect(undo({ drain: true }, now)).toEqual({ weight: null });
});

test("a drain hides the weight that is set", () => {
  expect(configuredWeight(withOverride({ drain: true }))).toBe(1);
  expect(configuredWeight(withOverride({ drain: true, weight: 5 }))).toBe(5);
});

test("a share is never rounded to nothing", () => {
  expect([undefined, 0, 0.001, 0.005, 1 / 3, 1].map(shareText)).toEqual(["–", "0 %", "<1 %", "1 %", "33 %", "100 %"]);
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

test("a role has open hand-overs if the worker computes prompts for others", () => {
  const of = (role: string, open_handovers?: number) => roleText({ role, open_handovers } as unknown as WorkerState);
  expect([of("decode"), of("prefill", 0), of("both", 1)]).toEqual(["decode", "prefill, 0 hand-overs open", "both, 1 hand-over open"]);
});

test("pools have the workers that match", () => {
  const named = (name: string, pool: string) => ({ name, pool, model: "m", state: "up" }) as unknown as WorkerState;
  const all = [named("a-0", "a"), named("b-0", "b"), named("a-1", "a")];
  const names = (pool: string, q: string) => [...shownPools(all, pool, q)].map(([p, ws]) => [p, ...ws.map((w) => w.name)]);
  expect(names("", "")).toEqual([["a", "a-0", "a-1"], ["b", "b-0"]]);
  expect(names("", "A-1 ")).toEqual([["a", "a-1"]]);
  expect(names("b", "")).toEqual([["b", "b-0"]]);
  expect(names("c", "")).toEqual([]);
});

test("an age has one unit", () => {
  const age = (s: number) => ageText(new Date(now - s * 1000).toISOString(), now);
  expect([-5, 0, 59, 63, 7300, 90_000].map(age)).toEqual(["0 s", "0 s", "59 s", "1 min", "2 h", "1 d"]);
});

test("the weight of the file is no override", () => {
  const w = { weights: { file: 2, effective: 5, version: 1 } };
  expect(changeTo(w, 2, 900)).toEqual({ weight: null });
  expect(changeTo(w, 3, 900)).toEqual({ weight: 3, ttl_s: 900 });
  expect(changeTo(w, 0, undefined)).toEqual({ weight: 0 });
});

test("a policy that ignores weights promises no share, and one of costs a nominal one", () => {
  expect(["round_robin", "random", "weighted_round_robin", "kv_aware"].map(ignoresWeights)).toEqual([true, true, false, false]);
  expect(shareTitle("round_robin")).not.toContain("Expected");
  expect(shareTitle("kv_aware")).toContain("nominal");
  expect(shareTitle("chwbl")).not.toContain("nominal");
});

test("the age of an open breaker is the breaker's, and not that of the checks", () => {
  const worker = (state: string, breaker: string, drain?: string) =>
    ({ state, since: "checks", breaker: { state: breaker, since: "breaker" }, ...(drain && { drain: { since: drain } }) }) as WorkerState;
  expect(["open", "half_open"].map((s) => sinceOf(worker(s, s)))).toEqual(["breaker", "breaker"]);
  expect(sinceOf(worker("down", "open"))).toBe("checks");
  expect(sinceOf(worker("drained", "closed", "drain"))).toBe("drain");
  expect([worker("up", "open"), worker("up", "closed"), worker("open", "open")].map(isKept)).toEqual([true, false, false]);
});

test("a failed attempt is shown with its status once", () => {
  const at = new Date().toISOString();
  expect(failureText(undefined)).toBe("none");
  expect(failureText({ at, status: 500, message: "no GPU", request_id: "r" })).toMatch(/^500 no GPU \(/);
  expect(failureText({ at, status: 500, message: "the worker answered 500", request_id: "r" })).toMatch(/^the worker answered 500 \(/);
  expect(failureText({ at, message: "connection refused", request_id: "r" })).toMatch(/^connection refused \(/);
});
