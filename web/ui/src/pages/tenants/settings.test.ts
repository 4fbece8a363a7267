import { expect, test } from "vitest";
import type { TenantView } from "../../api/schema";
import { bodyOf, emptyForm, errorsOf, formOf, namesOf, newSettings, numberOf, patchOf, rightsText, withTier } from "./settings";

test("limits are read with their suffixes", () => {
  expect([numberOf(""), numberOf(" 1,000 "), numberOf("10k"), numberOf("2.5M"), numberOf("0")]).toEqual([null, 1000, 10_000, 2_500_000, 0]);
  expect([numberOf("4.1M"), numberOf("8.2M"), numberOf("0.3k"), numberOf("0.25")]).toEqual([4_100_000, 8_200_000, 300, 0.25]);
  for (const bad of ["-1", "ten", "1e3", "1.2.3", "k"]) expect(numberOf(bad), bad).toBeUndefined();
});

test("names are separated by commas or spaces", () => {
  expect(namesOf(" , ")).toEqual([]);
  expect(namesOf("small, llama-*  qwen")).toEqual(["small", "llama-*", "qwen"]);
});

test("a form that was not edited changes nothing", () => {
  const tenant = {
    name: "a",
    limits: { rpm: 60, day_money: 2.5 },
    tiers: ["small"],
    models: null,
    priority: "background",
    default_priority: "batch",
    weight: 3,
    disabled: true,
    response_cache: true,
  } as unknown as TenantView;
  expect(patchOf(formOf(tenant), formOf(tenant))).toEqual({});
  expect([tenant, {} as TenantView].map((t) => bodyOf(formOf(t)).response_cache)).toEqual([true, false]);
  expect(newSettings(emptyForm)).toEqual({});
});

test("a patch has the changed fields only, and null removes a limit", () => {
  const before = { ...emptyForm, limits: { rpm: "60", tpm: "1000" } };
  const after = { ...before, limits: { rpm: "", tpm: "1k", rps: "5" }, tiers: ["small"] };
  expect(patchOf(before, after)).toEqual({ limits: { rpm: null, rps: 5 }, tiers: ["small"] });
});

test("values that cannot be sent are named with their field", () => {
  const errors = errorsOf({ ...emptyForm, limits: { rpm: "many", rps: "1.5", day_money: "0.5" }, weight: "0" });
  expect(Object.keys(errors).sort()).toEqual(["limits.rpm", "limits.rps", "weight"]);
  expect(errors["limits.rpm"]).toContain("Requests per minute");
  expect(bodyOf({ ...emptyForm, limits: { rpm: "60" } }).limits?.rpm).toBe(60);
});

test("no tier and no model are not all of them", () => {
  const tenant = (tiers: string[] | null, models: string[] | null) => ({ tiers, models }) as unknown as TenantView;
  for (const [tiers, models] of [[null, null], [[], []], [["small"], ["llama-*", "qwen"]]] as const) {
    const form = formOf(tenant(tiers && [...tiers], models && [...models]));
    expect([bodyOf(form).tiers, bodyOf(form).models]).toEqual([tiers, models]);
  }
  expect(patchOf(formOf(tenant([], [])), emptyForm)).toEqual({ tiers: null, models: null });
  expect([rightsText({}), rightsText({ tiers: [], models: [] }), rightsText({ tiers: ["a", "b"], models: null })]).toEqual([
    "all tiers",
    "no tier; no model",
    "a, b",
  ]);
});

test("permitted tiers keep the order of all tiers, and names that no longer exist", () => {
  const all = ["small", "medium", "large"];
  expect(withTier(["large", "old"], "small", true, all)).toEqual(["small", "large", "old"]);
  expect(withTier(["small", "old"], "old", false, all)).toEqual(["small"]);
  expect(withTier(["small"], "small", false, all)).toEqual([]);
});
