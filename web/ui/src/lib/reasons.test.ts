import { expect, test } from "vitest";
import form from "../../../../openai/answers/form.go?raw";
import content from "../../../../openai/answers/content.go?raw";
import cache from "../../../../telemetry/response_cache.go?raw";
import cached from "../../../../server/proxy/response_cache.go?raw";
import hooks from "../../../../hooks/reply.go?raw";
import attempts from "../../../../decisions/decision.go?raw";
import errors from "../../../../openai/error.go?raw";
import shed from "../../../../queue/ticket.go?raw";
import replay from "../../../../replay/report.go?raw";
import results from "../../../../telemetry/handover.go?raw";
import choice from "../../../../routing/choice.go?raw";
import usage from "../../../../server/proxy/attempt.go?raw";
import policies from "../../../../routing/policy.go?raw";
import preview from "../../../../routing/preview.go?raw";
import limits from "../../../../tenants/charge.go?raw";
import { codedText, reasonText, rejectionText, ruleText, type ReasonKind } from "./reasons";

/** constants returns the values of the constants with a prefix of their names. */
const constants = (source: string, prefix: string) =>
  [...source.matchAll(new RegExp(`^\\s+${prefix}[A-Z]\\w* .*?= "(\\w+)"`, "gm"))].map((m) => m[1]!);

/** words returns the texts of a list in a source. */
const words = (source: string, list: RegExp) => [...list.exec(source)![1]!.matchAll(/"(\w+)"/g)].map((m) => m[1]!);

test("every code of the gateway has words", () => {
  const all: [ReasonKind, string[]][] = [
    ["worker", constants(policies, "Reason")],
    ["exclusion", [...constants(choice, "Excluded"), ...constants(preview, "Excluded")]],
    ["shed", constants(shed, "Shed")],
    ["limit", constants(limits, "Limit")],
    ["error", constants(errors, "Code")],
    ["attempt", constants(attempts, "Error")],
    ["skip", constants(replay, "Skipped")],
  ];
  for (const [kind, codes] of all) {
    expect(codes.length, kind).toBeGreaterThan(5);
    expect(codes.filter((c) => reasonText(kind, c) === c), kind).toEqual([]);
  }
});

test("every result of a hand-over has words", () => {
  const ends = words(results, /handoverResults = .*\{(.*)\}/);
  expect(ends.length).toBe(6);
  expect(ends.filter((c) => reasonText("prompt", c) === c)).toEqual([]);
});

test("every result of a hook and of the response cache has words", () => {
  const reasons = (source: string) => [...source.matchAll(/^\s+\w+ +(?:answers\.)?Reason += "(\w+)"/gm)].map((m) => m[1]!);
  const answers = [...cached.matchAll(/^\s+answer\w+ += "(\w+)"/gm)].map((m) => m[1]!);
  const all: [ReasonKind, string[], number][] = [
    ["hook", words(hooks, /results = .*\{([^}]*)\}/), 9],
    ["cache", words(cache, /cacheResults = .*\{(.*)\}/), 4],
    ["bypass", [...reasons(form), ...reasons(cached)], 10],
    ["kept", [...reasons(content), ...answers, "size", "choices", "logprobs"], 10],
  ];
  for (const [kind, codes, number] of all) {
    expect(codes.length, kind).toBe(number);
    expect(codes.filter((c) => reasonText(kind, c) === c), kind).toEqual([]);
  }
});

test("every note about a reported usage has words", () => {
  const notes = [...usage.matchAll(/^\s+note[A-Z]\w* += "([^"]+)"/gm)].map((m) => m[1]!);
  expect(notes.length).toBeGreaterThan(3);
  expect(notes.filter((n) => reasonText("usage", n) === n)).toEqual([]);
});

test("an unknown code is shown as it is", () => {
  expect(reasonText("worker", "new_reason")).toBe("new_reason");
  expect(reasonText("worker", "constructor")).toBe("constructor");
  expect(codedText("worker", "new_reason")).toBe("new_reason");
  expect(ruleText("new:detail")).toBe("new:detail");
  expect(rejectionText({ outcome: "refused", code: "new_code" })).toBeUndefined();
});

test("a code stands before its words", () => {
  expect(codedText("exclusion", "tried")).toBe("tried: the request was tried there");
  expect(ruleText("keyword:code")).toBe("keywords of the group match (code)");
  expect(ruleText("default")).toBe("no other rule matches");
});

test("a rejection names the limit, with its amount if that is known", () => {
  const r = { outcome: "refused", code: "rate_limit_exceeded", limit: "rpm", shed: "" };
  expect(rejectionText(r)).toBe("Rejected: the tenant or its key reached the limit of requests per minute.");
  const uses = [
    { scope: "tenant", limit: "rpm", used: 1, room: 5, rate: 29, would_use: 1 },
    { scope: "key", limit: "rpm", used: 2, room: 2, rate: 12, would_use: 1 },
  ];
  expect(rejectionText({ ...r, uses })).toBe("Rejected: the key reached 12 requests per minute.");
  expect(rejectionText({ ...r, uses: uses.slice(0, 1) })).toBe("Rejected: the tenant reached 29 requests per minute.");
  expect(rejectionText({ ...r, limit: "day_money", uses: [{ scope: "tenant", limit: "day_money", used: 2, room: 2.5 }] })).toBe(
    "Rejected: the tenant reached 2.50 units of money per UTC day.",
  );
  expect(rejectionText({ ...r, limit: "token_burst" })).toMatch(/^Rejected: the request alone exceeds/);
});

test("other ends have their reason too", () => {
  expect(rejectionText({ outcome: "failed", code: "overloaded", shed: "depth" })).toBe("Failed: the queue has its maximum of waiting requests.");
  expect(rejectionText({ outcome: "refused", code: "invalid_api_key" })).toBe("Rejected: the API key is missing, malformed or unknown.");
  expect(rejectionText({ outcome: "ok" })).toBeUndefined();
});
