import { expect, test } from "vitest";

// client.ts reads the address of the page and listens to its person.
globalThis.document = { baseURI: "http://h/" } as Document;
globalThis.addEventListener = () => {};
const { ApiError } = await import("../../api/client");
const { withLines } = await import("./errorLines");

test("errors of the file begin with their line", () => {
  const e = new ApiError(422, "t", "d", [
    { location: "limits.rpm", message: "/etc/tierway/config.yaml:12:5: limits.rpm: unknown key (did you mean rps?)" },
    { location: "/etc/tierway/config.yaml", message: "open /etc/tierway/config.yaml: no such file or directory" },
  ], "r");
  const lined = withLines(e) as InstanceType<typeof ApiError>;
  expect(lined.fields).toEqual([{ location: "", message: "line 12: limits.rpm: unknown key (did you mean rps?)" }, e.fields[1]]);
  expect([lined.status, lined.title, lined.detail, lined.requestId]).toEqual([422, "t", "d", "r"]);
  expect(withLines(null)).toBeNull();
});
