import { expect, test } from "vitest";
import { overrideText, yamlOf } from "./yaml";

test("the file receives weights, and no drain", () => {
  const drain = { worker: "a", drain: true };
  const weight = { worker: "b", weight: 0 };
  const both = { worker: "c", drain: true, weight: 3 };
  expect(yamlOf([drain])).toBe("");
  expect(yamlOf([drain, weight, both])).toBe('- { name: "b", weight: 0 }\n- { name: "c", weight: 3 }');
  expect([drain, weight, both].map(overrideText)).toEqual(["drain", "weight 0", "drain, then weight 3"]);
});
