import { expect, test } from "vitest";
import type { Candidate } from "../../api/schema";
import { lmcacheText, marginOf, ordered, termNames } from "./candidates";

const c = (worker: string, score: number, more: object = {}) => ({ worker, score, ...more }) as Candidate;

test("the selected worker stands first, and excluded ones last", () => {
  const all = [c("a", 1, { excluded: "breaker open" }), c("b", 3), c("d", 2), c("e", 2)];
  expect(ordered(all, "b").map((x) => x.worker)).toEqual(["b", "d", "e", "a"]);
});

test("the margin names the next candidate", () => {
  const all = [c("a", 0.5), c("b", 0.61), c("d", 0.55, { excluded: "full" })];
  expect(marginOf(all, "a")).toBe("Next: b, 0.11 away.");
  expect(marginOf([c("a", 1), c("b", 1.00001)], "a")).toBe("Next: b, less than 0.0005 away.");
  expect(marginOf([c("a", 1), c("b", 1)], "a")).toMatch(/same score/);
  expect(marginOf([c("a", 1)], "a")).toBeUndefined();
});

test("terms of all candidates are columns", () => {
  expect(termNames([c("a", 1, { terms: { load: 1 } }), c("b", 1, { terms: { load: 2, overlap: 3 } })])).toEqual(["load", "overlap"]);
});

test("a candidate has the tokens or keys that LMCache's controller names", () => {
  const text = (more: object) => lmcacheText(c("a", 1, more));
  expect([text({ lmcache_tokens: 1024 }), text({ lmcache_keys: 12_300 }), text({})]).toEqual(["; LMCache 1,024", "; LMCache 12.3K keys", ""]);
});
