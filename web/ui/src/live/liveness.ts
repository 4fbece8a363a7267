import { clock } from "../lib/format";

/** The gateway sends an overview every second; after two and a half, something is wrong. */
export const staleAfter = 2500;

/** The first overview takes a connection and a second; after three, no stream opens. */
export const firstEventWithin = 3000;

export type Liveness = { state: "connecting" | "live" | "stale"; text: string };

/** Signs are what a tab knows about its data. Times are in milliseconds; 0 is never. */
export interface Signs {
  /** When the tab began to connect. */
  startedAt: number;
  /** Last overview of the stream. */
  eventAt: number;
  /** Last overview that was read without the stream. */
  polledAt: number;
  /** The connection failed, and has not opened since. */
  lost: boolean;
}

/** liveness returns whether the data of a page is current. Without an event, startedAt counts. */
export function liveness({ startedAt, eventAt, polledAt, lost }: Signs, now: number): Liveness {
  const age = now - (eventAt || startedAt);
  if (!lost && eventAt === 0 && age <= firstEventWithin) return { state: "connecting", text: "connecting" };
  if (!lost && eventAt !== 0 && age <= staleAfter) return { state: "live", text: "live" };
  return { state: "stale", text: `stale since ${clock(Math.max(startedAt, eventAt, polledAt), new Date(now))}` };
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
