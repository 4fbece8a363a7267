import { expect, test } from "vitest";
import { bodyOf, curlOf, emptyForm, headersOf, orderOf, parsePasted } from "./request";

test("a pasted command becomes its request, without its key", () => {
  const { form, notes } = parsePasted(
    `curl http://h:8080/v1/messages -H "Authorization: Bearer tw-secret" -H 'X-Model-Tier: large' -H 'X-Session-ID: s1' -H 'Content-Type: application/json' -d '{"model":"m"}'`,
  );
  expect(form).toEqual({ path: "/v1/messages", tier: "large", headers: "X-Session-ID: s1", body: '{\n  "model": "m"\n}' });
  expect(notes).toHaveLength(1);
  expect(JSON.stringify({ form, notes })).not.toContain("tw-secret");
});

test("what cannot be read is named", () => {
  expect(() => parsePasted("hello")).toThrow(/JSON object or a curl/);
  expect(() => parsePasted("{bad")).toThrow(/no JSON/);
  expect(() => parsePasted("curl http://h/ -d @file")).toThrow(/file/);
  expect(() => parsePasted("curl http://h/")).toThrow(/no body/);
  expect(() => bodyOf({ ...emptyForm, max_tokens: "many" })).toThrow(/max_tokens is many/);
  expect(() => headersOf({ ...emptyForm, headers: "broken" })).toThrow(/no colon/);
});

test("each endpoint gets its own body", () => {
  const f = { ...emptyForm, prompt: "hi", system: "be kind", max_tokens: "5" };
  expect(bodyOf(f)).toEqual({ model: "auto", max_tokens: 5, messages: [{ role: "system", content: "be kind" }, { role: "user", content: "hi" }] });
  expect(bodyOf({ ...f, path: "/v1/responses" })).toEqual({ model: "auto", input: "hi", instructions: "be kind", max_output_tokens: 5 });
  expect(bodyOf({ ...f, path: "/v1/embeddings" })).toEqual({ model: "auto", input: "hi" });
  expect(bodyOf({ ...f, path: "/v1/messages", system: "", max_tokens: "" }).max_tokens).toBe(1024);
});

test("the order and the command describe the same request", () => {
  const f = { ...emptyForm, prompt: "it's", tenant: "acme", tier: "large", class: "batch" };
  expect(orderOf(f, undefined)).toEqual({
    request: { model: "auto", messages: [{ role: "user", content: "it's" }] },
    path: "/v1/chat/completions",
    tenant: "acme",
    class: "batch",
    headers: { "X-Model-Tier": "large" },
  });
  expect(orderOf(f, "draft").draft).toBe("draft");
  const { form } = parsePasted(curlOf(f, "http://h"));
  expect(form.tier).toBe("large");
  expect(form.class).toBe("batch");
  expect(JSON.parse(form.body!)).toEqual(bodyOf(f));
});
