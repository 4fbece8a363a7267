import { expect, test } from "vitest";
import type { WorkerState } from "../../api/schema";
import { withAnswers, type Answer } from "./answers";

const worker = (name: string, version: number, weight: number, expected = 0.5) =>
  ({
    name,
    weight,
    inflight: version,
    weights: { effective: weight, file: 1, version },
    distribution: { now: 0, expected },
  }) as unknown as WorkerState;
const answer = (before: number, version: number, weight: number, at = 0): Answer => ({
  worker: worker("a", version, weight),
  expected: { a: 0.8, b: 0.2 },
  before,
  at,
});
const weights = (ws: WorkerState[]) => ws.map((w) => [w.name, w.weight, w.weights.version, w.distribution.expected]);
const stale = [worker("a", 0, 1), worker("b", 0, 1)];

test("data from before a change has the change", () => {
  const now = withAnswers(stale, [answer(0, 5, 4)], 1000);
  expect(weights(now)).toEqual([["a", 4, 5, 0.8], ["b", 1, 0, 0.2]]);
  expect(now[0]?.inflight).toBe(0); // load is as live as before
});

test("data from after a change, and that of another change, stay as they are", () => {
  for (const live of [[worker("a", 5, 4)], [worker("a", 6, 9)], [worker("b", 0, 1)]]) {
    expect(withAnswers(live, [answer(0, 5, 4)], 1000)).toBe(live);
  }
});

test("a change and its undo are both applied", () => {
  expect(weights(withAnswers(stale, [answer(0, 5, 4), answer(5, 0, 1)], 1000))[0]).toEqual(["a", 1, 0, 0.8]);
});

test("an answer is soon forgotten", () => {
  expect(withAnswers(stale, [answer(0, 5, 4)], 3000)).toBe(stale);
});
