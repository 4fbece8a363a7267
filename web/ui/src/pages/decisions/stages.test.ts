import { expect, test } from "vitest";
import type { Cache, Hook } from "../../api/schema";
import { cacheText, hookText, isKept } from "./stages";

const cache = (c: Partial<Cache>) => c as Cache;

test("a hit has its age, and the similarity if the texts differ", () => {
  expect(cacheText(cache({ result: "exact_hit", age_ms: 12_000 }))).toBe("exact_hit: the kept answer of an equal request was sent; 12 s old");
  expect(cacheText(cache({ result: "semantic_hit", age_ms: 300, similarity: 0.98765 }))).toMatch(/; 300 ms old; similarity 0\.988$/);
});

test("a bypass has its reason, and a miss states whether the new answer is kept", () => {
  expect(cacheText(cache({ result: "bypass", reason: "tools" }))).toBe("bypass: no look-up in the cache; tools: the request has tools");
  expect(cacheText(cache({ result: "miss", answer: "kept" }))).toBe("miss: no kept answer fits; new answer kept: for the next such request");
  expect(cacheText(cache({ result: "miss", answer: "size" }))).toMatch(/; new answer not kept, size: it is too long$/);
  expect(cacheText(cache({ result: "miss", similarity: 0.9, shadow: "different" }))).toMatch(/the kept answer and the new one are different$/);
});

test("only hits are kept answers", () => {
  const of = (result: Cache["result"]) => isKept({ cache: { result } });
  expect([of("exact_hit"), of("semantic_hit"), of("miss"), of("bypass"), isKept({})]).toEqual([true, true, false, false, false]);
});

test("the call of a hook has result, duration and cause", () => {
  const hook = (h: Partial<Hook>) => ({ name: "guard", at_ms: 0, duration_ms: 0, ...h }) as Hook;
  expect(hookText(hook({ result: "allowed", duration_ms: 3.4 }))).toBe("allowed: the request continues as it was; 3 ms");
  expect(hookText(hook({ result: "rejected", shadow: true, ignored_headers: 1 }))).toBe(
    "rejected: the service rejected the request; 0 ms; shadow: without effect; 1 change of headers ignored",
  );
  expect(hookText(hook({ result: "error", duration_ms: 1200, error: "status 500" }))).toBe(
    "error: no connection, or no valid answer; 1.2 s; status 500",
  );
});
