import { expect, test } from "vitest";

// client.ts reads the address of the page and listens to its person.
globalThis.document = { baseURI: "http://h/" } as Document;
globalThis.addEventListener = () => {};
const { ApiError } = await import("../../api/client");
const { lineRange, problemsOf } = await import("./problems");

test("errors of a draft have their line", () => {
  const e = new ApiError(422, "", "", [
    { location: "body.draft: tiers[0].nmae", message: "draft:15:5: tiers[0].nmae: unknown key (did you mean name?)" },
    { location: "body.draft", message: "the text is empty" },
  ], "");
  expect(problemsOf(e)).toEqual([
    { line: 15, text: "tiers[0].nmae: unknown key (did you mean name?)" },
    { line: 0, text: "the text is empty" },
  ]);
  expect(problemsOf(new ApiError(422, "", "", [{ location: "body.tenant", message: "no" }], ""))).toBeUndefined();
  expect(problemsOf(new Error("x"))).toBeUndefined();
});

test("a line is found in its text", () => {
  const text = "a\nbcd\n\nx";
  expect([1, 2, 3, 4, 9].map((n) => text.slice(...lineRange(text, n)))).toEqual(["a", "bcd", "", "x", "x"]);
});
