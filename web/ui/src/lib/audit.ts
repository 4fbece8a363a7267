import type { AuditView } from "../api/schema";
import { plural } from "./format";

/** targetText returns the target of an entry; a hash is shortened. */
export function targetText(e: Pick<AuditView, "target">): string {
  return /^[0-9a-f]{64}$/.test(e.target) ? e.target.slice(0, 8) : e.target;
}

type Override = { weight?: number; drain?: boolean } | undefined;

/** overrideText returns what an entry did to the override of a worker; undefined for other entries. */
export function overrideText(e: Pick<AuditView, "action" | "before" | "after">): string | undefined {
  if (!e.action.startsWith("worker.override")) return undefined;
  const [before, after] = [e.before as Override, e.after as Override];
  if (Boolean(before?.drain) !== Boolean(after?.drain)) return after?.drain ? "drain" : "end of the drain";
  return after?.weight === undefined ? "weight of the file" : `weight ${after.weight}`;
}

/** purgeText returns how many kept answers of a tenant an entry has removed; undefined for other entries. */
export function purgeText(e: Pick<AuditView, "action" | "after">): string | undefined {
  if (e.action !== "answers.purge") return undefined;
  const { removed = 0, shared } = (e.after ?? {}) as { removed?: number; shared?: string };
  return `${plural(removed, "answer")} in memory removed${shared ? `, with those of the group ${shared}` : ""}`;
}
