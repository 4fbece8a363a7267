import { expect, test } from "vitest";
import policies from "../../../../../routing/policy.go?raw";
import { scoreMeaning } from "./scores";

test("the scores of every policy have a meaning", () => {
  const names = [...policies.matchAll(/^\t\{"(\w+)",/gm)].map((m) => m[1]!);
  expect(names.length).toBeGreaterThan(10);
  expect(names.filter((n) => scoreMeaning(n, "") === undefined)).toEqual([]);
});

test("scores of kv_aware are seconds, and those of a policy without a choice are loads", () => {
  expect(scoreMeaning("kv_aware", "kv_history")?.unit).toBe("s");
  expect(scoreMeaning("kv_aware", "least_load")?.unit).toBe("tokens");
  expect(scoreMeaning("new_policy", "new_reason")).toBeUndefined();
  expect(scoreMeaning(undefined, undefined)).toBeUndefined();
});
