import { expect, test } from "vitest";
import { adminCurl, shellQuote } from "./curl";
import { parseSearch, picked, stringifySearch } from "./search";

test("the state of a page survives its address", () => {
  for (const search of [{}, { q: "a b&c=d#e?", sort: "-load" }, { q: "100 %", tenant: "ünï" }, { q: "123" }]) {
    expect(parseSearch(stringifySearch(search))).toEqual(search);
  }
  expect(stringifySearch({ q: "", sort: undefined })).toBe("");
});

test("a page keeps only its own parameters", () => {
  expect(picked("q", "sort")({ q: "x", other: "y", sort: 3 })).toEqual({ q: "x" });
});

test("a shell reads a quoted text unchanged", () => {
  expect(shellQuote(`it's`)).toBe(`'it'\\''s'`);
  expect(adminCurl("http://h/tierway/", "PATCH", "/admin/workers/a", { weight: 3 })).toBe(
    `curl -sS -X PATCH 'http://h/tierway/admin/workers/a' -H "Authorization: Bearer $ADMIN_KEY" -H 'Content-Type: application/json' -d '{"weight":3}'`,
  );
});
