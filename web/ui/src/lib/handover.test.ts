import { expect, test } from "vitest";
import type { Attempt } from "../api/schema";
import { promptText } from "./handover";

test("a record has the durations of both stages", () => {
  const attempt = (handover: object | undefined) => ({ worker: "d2", at_ms: 1, end_at_ms: 900, handover }) as Attempt;
  const prefill = { worker: "p1", at_ms: 10, end_at_ms: 320 };
  expect(promptText(attempt(undefined))).toBeUndefined();
  expect(promptText(attempt({ result: "local" }))).toBe("local: by the decode worker");
  expect(promptText(attempt({ result: "remote", prefills: [prefill], decode_at_ms: 325 }))).toBe(
    "remote: by a prefill worker. Stages: p1 in 310 ms, then d2 in 575 ms",
  );
  expect(promptText(attempt({ result: "failed", prefills: [{ ...prefill, error_type: "connect" }, { ...prefill, worker: "p2", error_type: "500" }] }))).toBe(
    "failed: the attempt failed. Stages: p1 failed in 310 ms, then p2 failed in 310 ms",
  );
});
