import { expect, test } from "vitest";
import { shellWords } from "./shellWords";

test("a command is split as a shell splits it", () => {
  expect(shellWords(`curl -d '{"a":"it'\\''s"}' "x y" \\\n  -H $'a\\'b\\n' c\\ d`)).toEqual(["curl", "-d", `{"a":"it's"}`, "x y", "-H", "a'b\n", "c d"]);
  expect(() => shellWords("curl 'open")).toThrow(/not closed/);
  expect(() => shellWords('curl "open')).toThrow(/not closed/);
  expect(() => shellWords("curl $'open\\'")).toThrow(/not closed/);
  expect(shellWords(`a '' "" $'\\\\' b"c"'d'`)).toEqual(["a", "", "", "\\", "bcd"]);
});
