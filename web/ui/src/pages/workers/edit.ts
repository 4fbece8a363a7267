import type { WorkerState } from "../../api/schema";
import { configuredWeight, weightOf } from "./weights";

/**
 * Edit is the state of a weight's control. base is the worker as it was when the edit began: the change is valid only
 * for its override, and an undo brings that override back.
 */
export type Edit =
  | { phase: "idle" }
  | { phase: "editing"; text: string; base: WorkerState }
  | { phase: "pending"; weight: number; base: WorkerState; sure: boolean; next?: Next }
  | { phase: "asking"; weight: number; base: WorkerState; warnings: string[] }
  | { phase: "failed"; message: string };

/** Next is an edit that was made while an earlier one is being saved. */
interface Next {
  text: string;
  committed: boolean;
}

export type EditEvent =
  | { kind: "edit"; text: string; worker: WorkerState }
  | { kind: "commit" }
  | { kind: "confirm" }
  | { kind: "cancel" }
  | { kind: "warned"; warnings: string[] }
  | { kind: "saved"; worker: WorkerState }
  | { kind: "failed"; message: string };

export const idle: Edit = { phase: "idle" };

/** step returns the state after an event. An event that has no meaning in a state leaves it as it is. */
export function step(s: Edit, e: EditEvent): Edit {
  switch (e.kind) {
    case "edit":
      return edited(s, e.text, e.worker);
    case "commit":
      return committed(s);
    case "confirm":
      return s.phase === "asking" ? { phase: "pending", weight: s.weight, base: s.base, sure: true } : s;
    case "cancel":
      return cancelled(s);
    case "warned":
      return s.phase === "pending" ? { phase: "asking", weight: s.weight, base: s.base, warnings: e.warnings } : s;
    case "saved":
      return s.phase === "pending" ? saved(s.next, e.worker) : s;
    case "failed":
      return s.phase === "pending" ? { phase: "failed", message: e.message } : s;
  }
}

function edited(s: Edit, text: string, worker: WorkerState): Edit {
  if (s.phase === "asking") return s;
  if (s.phase === "pending") return { ...s, next: { text, committed: false } };
  return { phase: "editing", text, base: s.phase === "editing" ? s.base : worker };
}

function committed(s: Edit): Edit {
  if (s.phase === "pending") return s.next ? { ...s, next: { ...s.next, committed: true } } : s;
  if (s.phase !== "editing") return s;
  const weight = weightOf(s.text);
  if (weight === undefined) return s; // its message stays until the text is a weight, or Escape
  if (weight === configuredWeight(s.base)) return idle;
  return { phase: "pending", weight, base: s.base, sure: false };
}

// A request that was sent cannot be called back.
function cancelled(s: Edit): Edit {
  if (s.phase !== "pending") return idle;
  const { next: _, ...rest } = s;
  return rest;
}

function saved(next: Next | undefined, worker: WorkerState): Edit {
  if (!next) return idle;
  const editing: Edit = { phase: "editing", text: next.text, base: worker };
  return next.committed ? committed(editing) : editing;
}

/** shownText returns the text of the control. Only without an edit does it follow the live data. */
export function shownText(s: Edit, worker: WorkerState): string {
  switch (s.phase) {
    case "editing":
      return s.text;
    case "pending":
      return s.next?.text ?? String(s.weight);
    case "asking":
      return String(s.weight);
    default:
      return String(configuredWeight(worker));
  }
}

/** mustSave reports whether the step from before to after begins a request. */
export function mustSave(before: Edit, after: Edit): boolean {
  return after.phase === "pending" && (before.phase !== "pending" || before.base !== after.base);
}
