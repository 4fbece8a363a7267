import { expect, test } from "vitest";
import type { Attempt, HandoverChoice } from "../api/schema";
import { costsText, handoverText, promptText } from "./handover";

const choice = (more: object) => ({ decision: "remote", why: "cost", uncached_tokens: 4000, prefill_worker: "p1", local_s: 0.5249, remote_s: 0.3104, ...more }) as HandoverChoice;

test("a hand-over is one line", () => {
  const text = (more: object) => handoverText(choice(more), "d2");
  expect(text({})).toBe("computed by p1, handed to d2: predicted cost 0.31 s, or 0.52 s on d2 itself");
  expect(text({ why: "threshold" })).toBe("computed by p1, handed to d2: 4,000 uncached tokens, by uncached_threshold");
  expect(text({ decision: "local" })).toBe("computed by d2 itself: predicted cost 0.52 s, or 0.31 s with p1");
  expect(text({ decision: "local", why: "whole" })).toBe("computed by d2 itself: one worker must serve both stages of this request");
  expect(text({ why: "only_way", prefill_worker: undefined })).toBe("no prefill worker takes the request, and d2 computes no prompts");
});

test("both costs are shown if they were compared", () => {
  expect(costsText(choice({ transfer_s: 0.02 }))).toBe(
    "Predicted cost: 0.52 s on the decode worker, 0.31 s with p1, with 0.02 s for the transfer; 4,000 uncached tokens.",
  );
  expect(costsText(choice({ local_s: undefined, remote_s: undefined }))).toBeUndefined();
});

test("a record has the durations of both stages", () => {
  const attempt = (handover: object | undefined) => ({ worker: "d2", at_ms: 1, end_at_ms: 900, handover }) as Attempt;
  const prefill = { worker: "p1", at_ms: 10, end_at_ms: 320 };
  expect(promptText(attempt(undefined))).toBeUndefined();
  expect(promptText(attempt({ result: "local" }))).toBe("local: the decode worker computed the prompt, as decided");
  expect(promptText(attempt({ result: "remote", prefills: [prefill], decode_at_ms: 325 }))).toBe(
    "remote: a prefill worker computed the prompt. Stages: p1 in 310 ms, then d2 in 575 ms",
  );
  expect(promptText(attempt({ result: "failed", prefills: [{ ...prefill, error_type: "connect" }, { ...prefill, worker: "p2", error_type: "500" }] }))).toBe(
    "failed: the attempt failed. Stages: p1 failed (connect) in 310 ms, then p2 failed (500) in 310 ms",
  );
});
