import { expect, test } from "vitest";
import type { UsedNow } from "../../api/schema";
import { shownUses, usageText } from "./limits";

type Use = UsedNow["limits"][number];
const use = (limit: string, used: number, room = 100) => ({ limit, used, room }) as Use;

test("limits keep their order, whichever is the fullest", () => {
  const names = (limits: Use[], all = false) => shownUses(limits, all).map((u) => u.limit);
  expect(names([use("tpm", 50), use("rpm", 1), use("day_money", 20)])).toEqual(["rpm", "tpm"]);
  expect(names([use("day_money", 79), use("tpm", 1), use("rpm", 50)])).toEqual(["rpm", "tpm"]);
  expect(names([use("day_money", 80), use("tpm", 1), use("rpm", 50)])).toEqual(["rpm", "tpm", "day_money"]);
  expect(names([use("day_money", 1), use("tpm", 1), use("rpm", 50)], true)).toEqual(["rpm", "tpm", "day_money"]);
});

test("the usage of a rate is shown against its burst", () => {
  expect(usageText(use("concurrent", 2, 8))).toBe("2/8 concurrent");
  expect(usageText({ ...use("rpm", 2, 8), rate: 480 })).toBe("480 rpm, burst 2/8");
});
