import { expect, test } from "vitest";
import type { LabelReport } from "../../api/schema";
import { boundsOf, gridOf, nameOf, pointOf, size } from "./curves";

const curve = (name: string, values: number[]) =>
  ({
    name,
    points: values.map((value, i) => ({ share: i / (values.length - 1), quality: { value, low: value - 0.04, high: value + 0.04 } })),
  }) as LabelReport["curves"][number];

const report = { curves: [curve("default", [0.6, 0.72, 0.8]), curve("random", [0.6, 0.7, 0.8])] } as LabelReport;

test("the plot has the intervals of the default score", () => {
  expect(boundsOf(report)).toEqual({ low: 0.55, high: 0.85 });
  expect(boundsOf({ curves: [curve("random", [1, 1])] } as LabelReport)).toEqual({ low: 1, high: 1.05 });
});

test("the corners of the plot are its bounds", () => {
  const bounds = { low: 0.5, high: 0.9 };
  expect(pointOf(bounds, 0, 0.5)).toEqual({ x: size.left, y: size.bottom });
  expect(pointOf(bounds, 1, 0.9)).toEqual({ x: size.right, y: size.top });
});

test("a wide plot has a line every 10 %", () => {
  expect(gridOf({ low: 0.55, high: 0.7 })).toEqual([0.55, 0.6, 0.65, 0.7]);
  expect(gridOf({ low: 0.35, high: 0.95 })).toEqual([0.4, 0.5, 0.6, 0.7, 0.8, 0.9]);
});

test("a model that knows the requests is called in-sample", () => {
  expect(nameOf({ ...curve("model", [0, 1]), apgr: { value: 0.6251, low: 0, high: 1 } }, true)).toBe("model, in-sample, APGR 0.625");
  expect(nameOf(curve("length", [0, 1]), true)).toBe("length alone");
});
