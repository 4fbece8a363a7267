import { expect, test } from "vitest";
import { stackedValues, withOthers } from "./lines";

test("a gap of one line counts as zero in a stack, and a gap of all lines stays a gap", () => {
  expect(
    stackedValues([
      { name: "a", values: [1, null, null] },
      { name: "b", values: [2, 3, null] },
    ]),
  ).toEqual([
    [1, 0, null],
    [3, 3, null],
  ]);
});

test("the largest lines keep their order, and the others are summed", () => {
  const lines = [
    { name: "a", values: [1, null, null] },
    { name: "b", values: [5, 5, 5] },
    { name: "c", values: [null, 2, null] },
    { name: "d", values: [9, 9, 9] },
  ];
  expect(withOthers(lines, 4)).toBe(lines);
  expect(withOthers(lines, 3)).toMatchObject([lines[1], lines[3], { name: "others (2)", values: [1, 2, null] }]);
});
