import type { DecisionView } from "../api/schema";

/** The table keeps this many rows: a page of minutes of traffic that still scrolls smoothly. */
export const keptRows = 5000;

/** Feed is the live list of decisions, newest first. */
export interface Feed {
  rows: DecisionView[];
  /** Records that the gateway left out because there were more than 50 per second. */
  dropped: number;
  /** Records that the gateway evicted before this browser received them. */
  missed: number;
  /** How often the gateway was restarted; record numbers of another process begin again at 1. */
  restarts: number;
}

export const emptyFeed: Feed = { rows: [], dropped: 0, missed: 0, restarts: 0 };

/** append returns the feed with an event of the stream. Rows that it already has are ignored. */
export function append(feed: Feed, event: string, data: unknown): Feed {
  switch (event) {
    case "decision": {
      const row = data as DecisionView;
      const newest = feed.rows[0];
      if (newest && row.seq <= newest.seq) return feed;
      return { ...feed, rows: [row, ...feed.rows.slice(0, keptRows - 1)] };
    }
    case "dropped":
      return { ...feed, dropped: feed.dropped + (data as { dropped: number }).dropped };
    case "gap": {
      const gap = data as { missed: number; restarted?: boolean };
      if (gap.restarted) return { ...emptyFeed, missed: gap.missed, restarts: feed.restarts + 1 };
      return { ...feed, missed: feed.missed + gap.missed };
    }
    default:
      return feed;
  }
}
