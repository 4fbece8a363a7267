import { expect, test } from "vitest";
import { resultStyle, styleOf } from "./colours";

test("a line keeps its look when others come, and no two have the same", () => {
  const names = Array.from({ length: 20 }, (_, i) => `worker-${i}`);
  const first = styleOf("a", "worker-7");
  const all = names.map((n) => styleOf("a", n));
  expect(all[7]).toEqual(first);
  expect(new Set(all.map((s) => s.colour + s.dash)).size).toBe(20);
  expect(styleOf("b", "worker-7")).toEqual(first); // another chart, where nothing was drawn before
});

test("colours of errors are those of no tier", () => {
  const ok = Array.from({ length: 20 }, (_, i) => resultStyle(i, "ok").colour);
  for (const result of ["refused", "failed", "truncated", "client_gone"]) {
    expect(ok).not.toContain(resultStyle(0, result).colour);
    expect(resultStyle(0, result).colour).toBe(resultStyle(3, result).colour);
  }
});
