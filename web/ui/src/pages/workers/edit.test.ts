import { expect, test } from "vitest";
import type { WorkerState } from "../../api/schema";
import { idle, mustSave, shownText, step, type Edit, type EditEvent } from "./edit";

const worker = (weight: number, version: number) =>
  ({ weight, weights: { effective: weight, file: 1, version, override: { weight } } }) as unknown as WorkerState;
const old = worker(3, 1);
const edit = (text: string, w = old): EditEvent => ({ kind: "edit", text, worker: w });
const commit: EditEvent = { kind: "commit" };
const run = (...events: EditEvent[]) => events.reduce<Edit>(step, idle);

test("an edit is committed, saved, and then the control follows the live data", () => {
  expect(run(edit("5"))).toEqual({ phase: "editing", text: "5", base: old });
  const pending = run(edit("5"), edit("6"), commit);
  expect(pending).toEqual({ phase: "pending", weight: 6, base: old, sure: false });
  expect(shownText(pending, worker(9, 2))).toBe("6");
  expect(step(pending, { kind: "saved", worker: worker(6, 2) })).toEqual(idle);
  expect(shownText(idle, worker(9, 2))).toBe("9");
});

test("live data neither moves a control that is being changed, nor becomes the base of its change", () => {
  const s = run(edit("5"), edit("6", worker(9, 2)));
  expect(s).toEqual({ phase: "editing", text: "6", base: old });
  expect(shownText(s, worker(9, 2))).toBe("6");
});

test("an edit during a save is sent after it, with the version of its answer", () => {
  const saved = worker(5, 2);
  const during = run(edit("5"), commit, edit("7"), commit);
  expect(during).toMatchObject({ phase: "pending", weight: 5, next: { text: "7", committed: true } });
  const after = step(during, { kind: "saved", worker: saved });
  expect(after).toEqual({ phase: "pending", weight: 7, base: saved, sure: false });
  expect([mustSave(run(edit("5"), commit), during), mustSave(during, after)]).toEqual([false, true]);
  expect(step(run(edit("5"), commit, edit("7")), { kind: "saved", worker: saved })).toEqual({
    phase: "editing",
    text: "7",
    base: saved,
  });
});

test("a failure snaps back and is shown until the next edit", () => {
  const failed = run(edit("5"), commit, edit("7"), { kind: "failed", message: "412" });
  expect(failed).toEqual({ phase: "failed", message: "412" });
  expect(shownText(failed, worker(4, 2))).toBe("4");
  expect(step(failed, edit("8", worker(4, 2)))).toMatchObject({ phase: "editing", text: "8", base: worker(4, 2) });
  expect(step(failed, { kind: "cancel" })).toEqual(idle);
});

test("a warning asks; only a confirmation sends the change", () => {
  const asking = run(edit("0"), commit, { kind: "warned", warnings: ["no worker"] });
  expect(asking).toMatchObject({ phase: "asking", weight: 0 });
  expect(step(asking, edit("4"))).toBe(asking);
  expect(step(asking, { kind: "confirm" })).toEqual({ phase: "pending", weight: 0, base: old, sure: true });
  expect(step(asking, { kind: "cancel" })).toEqual(idle);
});

test("nothing is sent for the weight that is set, or for a text that is no weight, which stays", () => {
  expect(run(edit("3"), commit)).toEqual(idle);
  for (const text of ["x", "", "101", "0.5"]) {
    expect(run(edit(text), commit), text).toEqual({ phase: "editing", text, base: old });
    expect(run(edit(text), commit, { kind: "cancel" }), text).toEqual(idle);
  }
  expect(run(commit)).toEqual(idle);
});

test("a cancelled save only forgets the edits after it", () => {
  expect(run(edit("5"), commit, edit("7"), { kind: "cancel" })).toEqual(run(edit("5"), commit));
});
