import { expect, test } from "vitest";
import type { DecisionView } from "../api/schema";
import { append, emptyFeed, keptRows, type Feed } from "./decisions";
import { liveness, staleLists, staleAfter } from "./liveness";

test("data is stale two and a half seconds after the last event", () => {
  expect(liveness(0, 5000).state).toBe("connecting");
  expect(liveness(10_000, 10_000 + staleAfter).state).toBe("live");
  const stale = liveness(10_000, 10_001 + staleAfter);
  expect(stale.state).toBe("stale");
  expect(stale.text).toMatch(/^stale since /);
  expect(liveness(10_000, 10_100, true).state).toBe("stale");
  expect(liveness(10_000, 99_000).text).toBe(liveness(10_000, 12_501).text);
});

test("a new version makes exactly its lists stale", () => {
  const before = { config: 1, overrides: 2, directory: 3, audit: 4 };
  expect(staleLists(undefined, before)).toEqual([]);
  expect(staleLists(before, before)).toEqual([]);
  expect(staleLists(before, { ...before, directory: 5 })).toEqual(["tenants", "admins"]);
  expect(staleLists(before, { ...before, audit: 5 })).toEqual(["audit"]);
});

const row = (seq: number) => ({ seq }) as DecisionView;

test("the feed is ordered, without repeats, and bounded", () => {
  let feed: Feed = emptyFeed;
  for (let seq = 1; seq <= keptRows + 10; seq++) feed = append(feed, "decision", row(seq));
  feed = append(feed, "decision", row(7));
  expect(feed.rows).toHaveLength(keptRows);
  expect(feed.rows[0]?.seq).toBe(keptRows + 10);
  expect(feed.rows.every((r, i) => i === 0 || r.seq < feed.rows[i - 1]!.seq)).toBe(true);
});

test("lost records are counted, and a restart begins a new feed", () => {
  let feed = append(append(emptyFeed, "decision", row(9)), "dropped", { dropped: 3 });
  feed = append(append(feed, "dropped", { dropped: 2 }), "gap", { missed: 4 });
  expect([feed.dropped, feed.missed, feed.rows.length]).toEqual([5, 4, 1]);
  feed = append(feed, "gap", { missed: 1, restarted: true });
  expect(feed).toEqual({ rows: [], dropped: 0, missed: 1, restarts: 1 });
  expect(append(feed, "decision", row(1)).rows).toHaveLength(1);
});
