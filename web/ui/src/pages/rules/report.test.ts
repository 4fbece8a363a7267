import { expect, test } from "vitest";
import type { ReplayAnswer } from "../../api/schema";
import { handoversOf, limitsOf, matrixOf, summaryOf } from "./report";

const tier = (name: string, now: number, draft: number) => ({ tier: name, requests: { now, draft }, prompt_tokens: { now: 0, draft: 0 } });
const move = (from: string, to: string, n: number) => ({ from, to, n, examples: [] });

test("the matrix has stayers on its diagonal, and rejections last", () => {
  const m = matrixOf({ tiers: [tier("small", 10, 4), tier("large", 2, 7), tier("", 0, 1)], changed_tier: [move("small", "large", 5), move("small", "", 1)] });
  expect(m.from).toEqual(["small", "large"]);
  expect(m.to).toEqual(["small", "large", ""]);
  expect(m.from.map((f) => m.to.map((t) => m.count(f, t)))).toEqual([
    [4, 5, 1],
    [0, 2, 0],
  ]);
});

test("what a replay cannot know is named", () => {
  const r = {
    skipped: [
      { name: "refused_by_limit", n: 3 },
      { name: "new_reason", n: 1 },
    ],
    unknown: { rights: 1, token_counts: 0, other_policy: 0, bounds: 2 },
    keyword_groups_not_recorded: ["maths"],
    config_generations: 2,
  } as ReplayAnswer;
  expect(limitsOf(r)).toEqual([
    "3 records left out: rejected by a limit.",
    "1 record left out: new_reason.",
    "1 request with a tenant or key that no longer exists: decided as if all tiers and models were permitted.",
    "2 requests with incomplete loads for the edited bounds: decided by the recorded loads.",
    "Keyword groups that no record has: maths. They match nothing here.",
    "These records come from 2 configurations.",
  ]);
});

test("the summary names each kind of change once", () => {
  const part = { n: 20, of: 20 };
  const unknown = { other_policy: 0 };
  const r = { records: 20, n: 20, tiers_reproduced: part, reproduced: part, changed_tier: [], changed_worker: 0, unknown } as unknown as ReplayAnswer;
  expect(summaryOf(r, false)).toBe("The configuration in force reproduces all 20 decisions.");
  expect(summaryOf({ ...r, records: 23 }, false)).toBe(
    "The configuration in force reproduces 20 of 20 decisions that it could check; 3 not checked.",
  );
  expect(summaryOf({ ...r, reproduced: { n: 3, of: 20 } }, false)).toBe(
    "The configuration in force reproduces the tier of 20 of 20 requests and the worker of 3 of 20 selections.",
  );
  expect(summaryOf({ ...r, unknown: { ...r.unknown, other_policy: 2 }, reproduced: { n: 18, of: 18 } }, false)).toBe(
    "The configuration in force reproduces the tier of 20 of 20 requests and the worker of 18 of 18 selections; 2 not checked.",
  );
  expect(summaryOf(r, true)).toBe("None of 20 requests would get another tier or worker.");
  const changed = { ...r, changed_tier: [move("small", "large", 5), move("small", "", 2)], changed_worker: 3 };
  expect(summaryOf(changed, true)).toBe(
    "Of 20 requests, 5 would get another tier, and with it another worker; 2 would be rejected; 3 would get another worker in the same tier.",
  );
  expect(summaryOf({ ...r, n: 0 }, true)).toBe("None of 20 records can be decided again.");
});

test("a replay says who computes the prompts", () => {
  const totals = (now: number, draft: number) => ({ now, draft });
  const handovers = { remote: totals(60, 90), local: totals(40, 10), changed: 30, changed_worker: 7, undecided: 0, reproduced: { n: 100, of: 100 } };
  const r = { handovers, records: 100, n: 100, changed_tier: [], changed_worker: 0 } as unknown as ReplayAnswer;
  expect(handoversOf({} as ReplayAnswer, true)).toBeUndefined();
  expect(handoversOf(r, false)).toBe(
    "Prompts by prefill workers: 60; by decode workers: 40.",
  );
  expect(handoversOf(r, true)).toBe(
    "Prompts by prefill workers: 60 → 90; by decode workers: 40 → 10; 37 would change.",
  );
  expect(summaryOf(r, true)).toBe("None of 100 requests would get another tier or worker.");
});
