import { expect, test } from "vitest";
import type { ReplayAnswer } from "../../api/schema";
import { limitsOf, matrixOf } from "./report";

const tier = (name: string, now: number, draft: number) => ({ tier: name, requests: { now, draft }, prompt_tokens: { now: 0, draft: 0 } });
const move = (from: string, to: string, n: number) => ({ from, to, n, examples: [] });

test("the matrix has stayers on its diagonal, and refusals last", () => {
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
    skipped: [{ name: "answered by the gateway", n: 3 }],
    unknown: { rights: 1, token_counts: 0, other_policy: 0, bounds: 2 },
    keyword_groups_not_recorded: ["maths"],
    config_generations: 2,
  } as ReplayAnswer;
  expect(limitsOf(r)).toEqual([
    "3 records left out: answered by the gateway.",
    "1 request with a tenant or key that no longer exists: decided as if everything were allowed.",
    "2 requests with loads that the edited bounds need and the records lack: decided as far as known.",
    "Keyword groups that no record has: maths. They match nothing here.",
    "2 configurations made these records.",
  ]);
});
