import { useRef } from "react";
import { plural } from "../../lib/format";

interface LossesProps {
  feed: { dropped: number; missed: number };
  /** The number of the newest record when the list was fetched: earlier losses do not matter. */
  since: number;
  onReload: () => void;
}

/** Losses shows how many records the list lacks, and fetches them. */
export function Losses({ feed, since, onReload }: LossesProps) {
  const before = useRef({ since, dropped: feed.dropped, missed: feed.missed });
  if (before.current.since !== since) before.current = { since, dropped: feed.dropped, missed: feed.missed };
  const dropped = feed.dropped - before.current.dropped;
  const missed = feed.missed - before.current.missed;
  if (dropped <= 0 && missed <= 0) return null;
  return (
    <p className="note warn losses row" role="status">
      <span>
        {dropped > 0 && `The list lacks ${plural(dropped, "record")}: at most 50 per second are sent to a page. `}
        {missed > 0 && `The gateway evicted ${plural(missed, "record")} before this page received ${missed === 1 ? "it" : "them"}. `}
      </span>
      {dropped > 0 && (
        <button type="button" onClick={onReload}>
          Load the newest again
        </button>
      )}
    </p>
  );
}
