import { expect, test } from "vitest";
import type { DecisionView } from "../../api/schema";
import { distinct, endOf, merged, newerThan, prefixOf, reasonOf, timeOf, tokensOf, triedBefore, triesOf } from "./rows";

const d = (seq: number, more: object = {}) => ({ seq, outcome: "ok", attempts: [], ...more }) as unknown as DecisionView;

test("live records stand before the fetched ones, without repeats", () => {
  const live = [d(9, { tenant: "a" }), d(8, { tenant: "b" }), d(7, { tenant: "a" }), d(6, { tenant: "a" })];
  const fetched = [d(7, { tenant: "a" }), d(5, { tenant: "a" })];
  const seqs = (rows: DecisionView[]) => rows.map((r) => r.seq);
  expect(seqs(merged(live, fetched, { tenant: "a" }, 7))).toEqual([9, 7, 5]);
  expect(seqs(merged(live, [], {}, 0))).toEqual([9, 8, 7, 6]);
  expect(merged([], fetched, {}, 7)).toBe(fetched);
  expect(seqs(merged(live, fetched, {}, 7, 7))).toEqual([7, 5]);
  expect(merged(live, fetched, {}, 7, 1)).toEqual([]);
  expect(newerThan(live, 7, {})).toHaveLength(2);
});

test("live records that are older than newly fetched ones stay, and the fetched ones fill their gaps", () => {
  const live = [d(9), d(7), d(6), d(3)];
  const fetched = [d(9), d(8), d(7)];
  expect(merged(live, fetched, {}, 5).map((r) => r.seq)).toEqual([9, 8, 7, 6]);
  expect(merged([d(6), d(3)], fetched, {}, 2).map((r) => r.seq)).toEqual([9, 8, 7, 6, 3]);
});

test("the chain of attempts shows each failure", () => {
  const chain = (more: object) => triesOf(d(1, more)).map((t) => `${t.worker} ${t.good ? "✓" : t.text}`);
  const first = { worker: "w03", status: 503, error: "status 503", error_type: "503" };
  expect(chain({ attempts: [first, { worker: "w07", status: 200 }] })).toEqual(["w03 503", "w07 ✓"]);
  expect(chain({ attempts: [{ worker: "w1", error_type: "connect" }, { worker: "w2" }], outcome: "failed" })).toEqual(["w1 connect", "w2 failed"]);
  expect(chain({ attempts: [{ worker: "w1", status: 200 }], outcome: "truncated" })).toEqual(["w1 truncated"]);
  expect(chain({ attempts: [{ worker: "w1", status: 200 }], outcome: "client_gone" })).toEqual(["w1 client disconnected"]);
  expect(chain({ attempts: [{ worker: "w1", status: 400 }], outcome: "refused" })).toEqual(["w1 400"]);
  expect(chain({ attempts: null })).toEqual([]);
});

test("workers that were tried before are no candidates of a later attempt in the same tier", () => {
  const choice = (...workers: string[]) => ({ candidates: workers.map((worker) => ({ worker })) });
  const attempts = [{ worker: "w1", choice: choice("w1", "w2") }, { worker: "w2", choice: choice("w2") }, { worker: "w1", choice: choice("w1") }, { worker: "x", tier: "large" }];
  const tried = (i: number, more: object = {}) => triedBefore(d(1, { attempts, ...more }), i);
  expect(tried(0)).toEqual([]);
  expect(tried(1)).toEqual([{ worker: "w1", why: "tried" }]);
  expect(tried(2)).toEqual([{ worker: "w2", why: "tried" }]);
  expect(tried(3)).toEqual([]);
  expect(tried(4)).toEqual([{ worker: "x", why: "tried" }]);
});

test("a rejected request shows its code instead of a reason, each in words", () => {
  expect(reasonOf(d(1, { reason: "prefix" }))).toEqual({ filter: "reason", value: "prefix", text: "prefix" });
  expect(reasonOf(d(1, { reason: "random" }))).toEqual({ filter: "reason", value: "random", text: "random: drawn at random" });
  const rejected = d(1, { outcome: "refused", code: "rate_limit_exceeded", limit: "rpm" });
  expect(reasonOf(rejected)).toMatchObject({ filter: "code", value: "rate_limit_exceeded", text: expect.stringMatching(/^Rejected: .* requests per minute/) });
  expect(reasonOf(d(1, { outcome: "refused", code: "new" })).text).toBe("new");
});

test("estimates are marked", () => {
  expect(tokensOf(d(1, { usage: { prompt: 10, cached: 0, output: 5 } }))).toBe("10 + 5");
  expect(tokensOf(d(1, { usage: { prompt: 10, cached: 0, output: 5 }, estimated: true }))).toBe("≈10 + 5");
  expect(tokensOf(d(1, { prompt_tokens_estimate: 12 }))).toBe("≈12");
  expect(tokensOf(d(1))).toBe("–");
  expect(prefixOf(d(1, { usage: { prompt: 10, cached: 5, output: 5 } }))).toBe("50 %");
  expect(prefixOf(d(1, { prompt_tokens_estimate: 100, attempts: [{ worker: "w", predicted_cached_tokens: 41 }] }))).toBe("≈41 %");
  expect(prefixOf(d(1, { prompt_tokens_estimate: 100 }))).toBe("–");
});

test("suggestions begin with the most frequent value", () => {
  expect(distinct([d(1, { tenant: "a" }), d(2, { tenant: "b" }), d(3, { tenant: "b" }), d(4)], (r) => r.tenant)).toEqual(["b", "a"]);
});

test("records are ordered and shown by their end", () => {
  expect(endOf(d(1, { time: "2026-11-27T12:00:00.5Z", duration_ms: 600 }))).toBe(Date.parse("2026-11-27T12:00:01.1Z"));
  const [at, now] = [new Date(2026, 10, 27, 9, 5, 7, 42), new Date(2026, 10, 27, 23)];
  expect(timeOf(at.getTime(), now)).toBe("09:05:07.042");
  expect(timeOf(at.getTime(), new Date(2026, 10, 28))).toBe("11-27 09:05:07");
});

test("an attempt names the worker that computed its prompt", () => {
  const attempt = (result: string) => ({ worker: "d1", handover: { result, prefills: [{ worker: "p0" }, { worker: "p1" }] } });
  const prefills = (result: string) => triesOf(d(1, { attempts: [attempt(result)] })).map((t) => t.prefill);
  expect(prefills("remote")).toEqual(["p1"]);
  expect(prefills("recomputed")).toEqual([undefined]);
  const handover = { result: "remote", prefills: [{ worker: "p1", predicted_cached_tokens: 50 }] };
  const predicted = { prompt_tokens_estimate: 100, attempts: [{ worker: "d1", predicted_cached_tokens: 0, handover }] };
  expect(prefixOf(d(1, predicted))).toBe("≈50 %");
});
