import { useCallback, useRef, useState } from "react";
import type { DecisionView } from "../../api/schema";
import type { Feed } from "../../live/decisions";

/** Cause is why the list does not change. */
export type Cause = "button" | "pointer" | "scroll" | "record";

export interface Pause {
  /** The feed as it was when the pause began, or the current one. */
  feed: Feed;
  /** Number of the newest record when the pause began; later ones wait. Infinity without a pause. */
  newest: number;
  causes: ReadonlySet<Cause>;
  set: (cause: Cause, on: boolean) => void;
  end: () => void;
}

/** usePause keeps the list while there is a cause to, so that no row moves under the pointer. */
export function usePause(current: Feed, fetched: DecisionView[]): Pause {
  const [causes, setCauses] = useState<ReadonlySet<Cause>>(new Set());
  const kept = useRef<{ feed: Feed; newest: number }>(undefined);
  const set = useCallback((cause: Cause, on: boolean) => {
    setCauses((old) => {
      if (old.has(cause) === on) return old;
      const now = new Set(old);
      if (on) now.add(cause);
      else now.delete(cause);
      return now;
    });
  }, []);
  const end = useCallback(() => setCauses(new Set()), []);
  // Records of another process have other numbers, so an old feed cannot be kept.
  if (causes.size === 0 || (kept.current && kept.current.feed.restarts !== current.restarts)) kept.current = undefined;
  else kept.current ??= { feed: current, newest: Math.max(current.rows[0]?.seq ?? 0, fetched[0]?.seq ?? 0) };
  return { ...(kept.current ?? { feed: current, newest: Infinity }), causes, set, end };
}
