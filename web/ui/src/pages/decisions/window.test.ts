import { expect, test } from "vitest";
import { rowHeight, visiblePart } from "./window";

test("the part covers what is visible, wherever the box is scrolled to", () => {
  const [height, rows] = [700, 5000];
  for (let top = 0; top <= rows * rowHeight - height; top += 997) {
    const { from, to } = visiblePart(top, height, rows);
    expect(from * rowHeight).toBeLessThanOrEqual(top);
    expect(to === rows || to * rowHeight >= top + height).toBe(true);
    expect(to - from).toBeLessThan(80);
  }
});

test("short lists are shown whole", () => {
  expect(visiblePart(0, 700, 3)).toEqual({ from: 0, to: 3 });
  expect(visiblePart(0, 700, 0)).toEqual({ from: 0, to: 0 });
  expect(visiblePart(100_000, 700, 30).to).toBe(30);
});
