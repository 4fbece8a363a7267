import { expect, test } from "vitest";
import type { WorkerState } from "../../api/schema";
import { notesOf } from "./notes";

const now = new Date("2026-01-02T12:00:00Z");
const at = "2026-01-02T11:59:00Z";
const clockOf = (t: string) => new Date(t).toLocaleTimeString("en-GB");

test("drains and weights of 0 are noted with their author and time", () => {
  const override = (o: object) => ({ at, by: "ops", ...o });
  const workers = [
    { name: "a", weights: { effective: 1, file: 1 } },
    { name: "b", weights: { effective: 0, file: 1, override: override({ drain: true }) }, drain: { since: at } },
    { name: "c", weights: { effective: 0, file: 1, override: override({ weight: 0 }) } },
    { name: "d", weights: { effective: 0, file: 0 } },
  ] as unknown as WorkerState[];
  expect(notesOf(workers, now)).toEqual([
    { worker: "b", text: `Drain since ${clockOf(at)} by ops: no new requests.` },
    { worker: "c", text: `Weight 0 since ${clockOf(at)} by ops: no new requests.` },
    { worker: "d", text: "Weight 0 in config.yaml: no new requests." },
  ]);
});
