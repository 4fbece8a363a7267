import { expect, test } from "vitest";
import { hitsOf, type Recent } from "./recent";

test("hits are a share of the look-ups, not of all requests", () => {
  const of = (result: string, values: (number | null)[]) => ({ name: "response_cache", labels: { result }, unit: "1/s", values });
  const series = [of("exact_hit", [null, 1, 0, 3]), of("semantic_hit", [null, 1, 0, 0]), of("miss", [null, 2, 0, 1]), of("bypass", [null, 9, 9, 9])];
  expect(hitsOf({ t: [1, 2, 3, 4], series } as unknown as Recent)).toEqual({ rate: [null, 2, 0, 3], share: 5 / 8 });
  expect(hitsOf(undefined)).toEqual({ rate: [], share: null });
});
