import { expect, test } from "vitest";
import type { DecisionView } from "../../api/schema";
import { conditionsOf, filterOf, isBefore, matches, type Filter } from "./filter";

const record = {
  time: "2026-11-27T12:00:00.123456789Z",
  request_id: "req-Ab1",
  tenant: "acme",
  key: "k-1",
  tier: "small",
  rule: "default",
  class: "batch",
  requested_model: "auto",
  model: "demo-small-7b",
  worker: "w07",
  reason: "prefix",
  outcome: "ok",
  status: 200,
  attempts: [
    { worker: "w03", reason: "random" },
    { worker: "w07", reason: "prefix" },
  ],
} as DecisionView;

const selects = (f: Filter, d: DecisionView = record) => matches(f, d);

test("every condition must be met", () => {
  expect(selects({})).toBe(true);
  expect(selects({ tenant: "acme", tier: "small", class: "batch", outcome: "ok", status: "200", rule: "default" })).toBe(true);
  for (const f of [{ tenant: "ac" }, { tier: "large" }, { class: "interactive" }, { outcome: "failed" }, { status: "429" }, { rule: "header" }, { code: "x" }]) {
    expect(selects(f), JSON.stringify(f)).toBe(false);
  }
});

test("a model matches as requested and as sent", () => {
  expect(selects({ model: "auto" })).toBe(true);
  expect(selects({ model: "demo-small-7b" })).toBe(true);
  expect(selects({ model: "demo" })).toBe(false);
});

test("worker and reason must belong to one attempt", () => {
  expect(selects({ worker: "w03" })).toBe(true);
  expect(selects({ worker: "w03", reason: "random" })).toBe(true);
  expect(selects({ worker: "w03", reason: "prefix" })).toBe(false);
  const refused = { ...record, attempts: null, worker: undefined, reason: "no_worker" } as unknown as DecisionView;
  expect(selects({ reason: "no_worker" }, refused)).toBe(true);
  expect(selects({ worker: "w07" }, refused)).toBe(false);
});

test("a search ignores case and covers ids, names and all workers", () => {
  for (const q of ["AB1", "acm", "K-1", "AUTO", "7b", "w03", "SMALL"]) expect(selects({ q }), q).toBe(true);
  expect(selects({ q: "prefix" })).toBe(false);
});

test("a search for a status does not find it in ids", () => {
  expect(conditionsOf({ q: "429", tenant: "acme" })).toEqual({ status: "429", tenant: "acme" });
  expect(conditionsOf({ q: " 500 " })).toEqual({ status: "500" });
  expect(conditionsOf({ q: "429", status: "500" })).toEqual({ q: "429", status: "500" });
  for (const q of ["42", "4290", "099", "600", "w429", "4 9"]) expect(conditionsOf({ q }), q).toEqual({ q });
  expect(conditionsOf({ tier: "small" })).toEqual({ tier: "small" });
});

test("since is part of the period, and until is not, to the nanosecond", () => {
  expect(selects({ since: record.time })).toBe(true);
  expect(selects({ until: record.time })).toBe(false);
  expect(selects({ since: "2026-11-27T12:00:00.123456790Z" })).toBe(false);
  expect(selects({ until: "2026-11-27T12:00:00.12345679Z" })).toBe(true);
  expect(selects({ since: "2026-11-27T13:00:00.2+01:00" })).toBe(false);
  expect(isBefore("2026-11-27T12:00:00Z", "2026-11-27T12:00:00.000000001Z")).toBe(true);
  expect(isBefore("2026-11-27T12:00:00.999999999Z", "2026-11-27T12:00:01Z")).toBe(true);
});

test("the filter is that part of the address", () => {
  expect(filterOf({ id: "x", tenant: "acme", tier: "" })).toEqual({ tenant: "acme" });
});

test("a worker also matches if it computed the prompt of an attempt", () => {
  const handover = { result: "remote", prefills: [{ worker: "p1" }] };
  const d = { ...record, attempts: [{ worker: "w07", reason: "prefix", handover }] } as unknown as DecisionView;
  expect(selects({ worker: "p1" }, d)).toBe(true);
  expect(selects({ worker: "p1", reason: "random" }, d)).toBe(false);
  expect(selects({ worker: "p2" }, d)).toBe(false);
});
