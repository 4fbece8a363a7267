import { expect, test } from "vitest";
import { dataOrigin, snippets } from "./snippets";

test("every snippet addresses the gateway and holds no key", () => {
  for (const s of snippets({ origin: "https://llm.example:8443", model: "auto" })) {
    expect(s.text, s.id).toContain("https://llm.example:8443");
    expect(s.text, s.id).not.toMatch(/tw-[A-Za-z0-9]{8}/);
  }
});

test("a model name cannot leave its quotes", () => {
  const model = `a"b'c`;
  for (const s of snippets({ origin: "http://h:1", model })) {
    if (!s.text.includes("a\"b") && !s.text.includes("a\\\"b")) continue;
    expect(s.text.includes(JSON.stringify(model)) || s.text.includes(`a"b'\\''c`) || s.text.includes(`a\\"b'\\''c`), s.id).toBe(true);
  }
});

test("an address that listens everywhere is the page's host", () => {
  const page = new URL("https://ops.example/tierway/");
  expect(dataOrigin("0.0.0.0:8080", false, page)).toBe("http://ops.example:8080");
  expect(dataOrigin(":8080", true, page)).toBe("https://ops.example:8080");
  expect(dataOrigin("[::]:8080", false, page)).toBe("http://ops.example:8080");
  expect(dataOrigin("[::1]:9", false, page)).toBe("http://[::1]:9");
  expect(dataOrigin("127.0.0.1:8080", false, page)).toBe("http://127.0.0.1:8080");
});
