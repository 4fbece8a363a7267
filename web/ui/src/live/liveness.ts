import { clock } from "../lib/format";

/** The gateway sends an overview every second; after two and a half, something is wrong. */
export const staleAfter = 2500;

export type Liveness = { state: "connecting" | "live" | "stale"; text: string };

/**
 * liveness returns whether the data of a page is current. Times are in milliseconds; 0 is never. lost: the
 * connection broke after the last event.
 */
export function liveness(lastEventAt: number, now: number, lost = false): Liveness {
  if (lastEventAt === 0) return { state: "connecting", text: "connecting" };
  if (!lost && now - lastEventAt <= staleAfter) return { state: "live", text: "live" };
  return { state: "stale", text: `stale since ${clock(lastEventAt, new Date(now))}` };
}

/** Versions are the version numbers of an overview; a change means that a list must be fetched again. */
export type Versions = Record<string, number>;

const listsOf: Record<string, string[]> = {
  config: ["config", "tiers", "rules", "status", "workers", "tenants"],
  overrides: ["config", "workers", "tiers"],
  directory: ["tenants", "admins"],
  audit: ["audit"],
};

/** staleLists returns the query keys of the lists that changed between two overviews. */
export function staleLists(before: Versions | undefined, after: Versions): string[] {
  if (!before) return [];
  const changed = Object.keys(after).filter((name) => before[name] !== after[name]);
  return [...new Set(changed.flatMap((name) => listsOf[name] ?? []))];
}
