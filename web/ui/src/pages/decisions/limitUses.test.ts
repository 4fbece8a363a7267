import { expect, test } from "vitest";
import type { DecisionView, TenantView } from "../../api/schema";
import { limitUsesOf } from "./limitUses";

const rpm = { scope: "tenant", limit: "rpm", used: 2, room: 2, rate: 29 };
const tenant = (keyLimits: object) =>
  ({ key_list: [{ id: "k1", limits: keyLimits }], now: { limits: [{ ...rpm, limit: "tpm" }, rpm] } }) as unknown as TenantView;
const rejected = { key: "k1", limit: "rpm" } as unknown as DecisionView;

test("the limit that rejected a request is the tenant's, unless its key has the same limit", () => {
  expect(limitUsesOf(rejected, tenant({ tpm: 5 }))).toEqual([rpm]);
  expect(limitUsesOf(rejected, tenant({ rpm: 5 }))).toEqual([]);
  expect(limitUsesOf(rejected, undefined)).toEqual([]);
  expect(limitUsesOf({ ...rejected, limit: undefined }, tenant({}))).toEqual([]);
});
