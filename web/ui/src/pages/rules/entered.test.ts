import { expect, test } from "vitest";
import { nothingEntered, opened } from "./entered";
import { emptyForm } from "./request";

const before = { ...nothingEntered, owner: "ann", form: { ...emptyForm, prompt: "hi", tenant: "acme" }, draft: "tiers:" };

test("the request and the draft stay while the tab is open", () => {
  expect(opened(before, "ann", {})).toBe(before);
});

test("another admin begins with an empty page", () => {
  expect(opened(before, "bob", {})).toEqual({ ...nothingEntered, owner: "bob" });
});

test("a link sets its fields once, and keeps the texts", () => {
  const first = opened(before, "ann", { tier: "large" });
  expect(first.form).toEqual({ ...emptyForm, prompt: "hi", tier: "large" });
  expect(first.draft).toBe("tiers:");
  const edited = { ...first, form: { ...first.form, tier: "small" } };
  expect(opened(edited, "ann", { tier: "large" })).toBe(edited);
  expect(opened(edited, "ann", { tier: "medium" }).form.tier).toBe("medium");
});
