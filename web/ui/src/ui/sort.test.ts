import { expect, test } from "vitest";
import { sorted, sortingOf } from "./sort";

test("rows are in the order of their values, and rows without a value come last", () => {
  const rows: { id: string; v?: string | number }[] = [
    { id: "none" },
    { id: "b", v: 10 },
    { id: "a", v: 9 },
    { id: "also b", v: 10 },
  ];
  const ids = (desc: boolean) => sorted(rows, (r) => r.v, desc).map((r) => r.id);
  expect(ids(false)).toEqual(["a", "b", "also b", "none"]);
  expect(ids(true)).toEqual(["b", "also b", "a", "none"]);
});

test("names with numbers are in the order of the numbers", () => {
  const rows = ["worker-10", "Worker-1", "worker-2"];
  expect(sorted(rows, (r) => r, false)).toEqual(["Worker-1", "worker-2", "worker-10"]);
});

test("a parameter names a column and a direction", () => {
  expect(sortingOf(undefined)).toBeUndefined();
  expect(sortingOf("load")).toEqual({ id: "load", desc: false });
  expect(sortingOf("-load")).toEqual({ id: "load", desc: true });
});
