import { expect, test } from "vitest";
import { overrideText, purgeText, targetText } from "./audit";

test("an override is named by what it changes", () => {
  const text = (before?: object, after?: object) => overrideText({ action: "worker.override", before, after });
  expect(text(undefined, { weight: 3 })).toBe("weight 3");
  expect(text({ weight: 3 }, { weight: 3, drain: true })).toBe("drain");
  expect(text({ drain: true }, {})).toBe("end of the drain");
  expect(text({ weight: 3 }, undefined)).toBe("weight of the file");
  expect(overrideText({ action: "tenant.create" })).toBeUndefined();
});

test("a hash is shortened, and a name is not", () => {
  expect(targetText({ target: "0123456789abcdef".repeat(4) })).toBe("01234567");
  expect(targetText({ target: "small-0" })).toBe("small-0");
});

test("a purge states how many answers it has removed", () => {
  expect(purgeText({ action: "answers.purge", after: { removed: 1 } })).toBe("1 answer in memory removed");
  expect(purgeText({ action: "answers.purge", after: { removed: 2, shared: "support" } })).toBe("2 answers in memory removed, with those of the group support");
  expect(purgeText({ action: "tenant.create", after: {} })).toBeUndefined();
});
