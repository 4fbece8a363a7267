import { expect, test } from "vitest";
import type { WorkerState } from "../../api/schema";
import { hiddenText, impactText, overridden, overrideText } from "./override";

test("a drain hides the weight, which applies after it", () => {
  const both = { drain: true, weight: 3 };
  expect([{ drain: true }, { weight: 0 }, both].map(overrideText)).toEqual(["drain", "weight 0", "drain, then weight 3"]);
});

test("an override that was changed since it was shown is not reset", () => {
  const worker = { name: "a", weights: { override: { at: "2026-01-01T00:00:00Z" } } } as WorkerState;
  expect(overridden({ worker: "a", at: "2026-01-01T00:00:00Z" }, [worker])).toBe(worker);
  expect(() => overridden({ worker: "a", at: "2026-01-01T00:00:01Z" }, [worker])).toThrow(/changed meanwhile/);
  expect(() => overridden({ worker: "b", at: "2026-01-01T00:00:00Z" }, [worker])).toThrow(/changed meanwhile/);
});

test("a drain is no weight of 0", () => {
  const impact = { worker: "a", weight: 0, effect: "kept", file_weight: 1 } as const;
  expect(impactText(impact, true)).toBe("drain of a stays; the file has weight 1");
  expect(impactText(impact, false)).toBe("weight 0 of a stays; the file has 1");
});

test("a weight that an override hides is named with the override", () => {
  const hidden = { worker: "a", weight: 5, effect: "shadows", file_weight: 40 } as const;
  expect(hiddenText(hidden)).toBe("The live override wins: the weight 5 of a applies, and the edited weight 40 changes nothing.");
  expect(hiddenText({ ...hidden, weight: 0, drain: true })).toContain("the drain of a applies");
});
