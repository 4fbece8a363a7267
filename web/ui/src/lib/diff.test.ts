import { expect, test } from "vitest";
import { differences } from "./diff";

test("equal values have no differences", () => {
  expect(differences({ a: { b: [1, 2] } }, { a: { b: [1, 2] } })).toEqual([]);
  expect(differences(undefined, undefined)).toEqual([]);
});

test("each changed, added and removed value is one difference", () => {
  expect(differences({ limits: { rpm: 1, tpm: 2 }, tiers: ["a"] }, { limits: { rpm: 3 }, tiers: ["a", "b"], x: null })).toEqual([
    { path: "limits.rpm", before: "1", after: "3" },
    { path: "limits.tpm", before: "2", after: undefined },
    { path: "tiers[1]", before: undefined, after: "b" },
    { path: "x", before: undefined, after: "null" },
  ]);
});
