import { expect, test } from "vitest";
import type { DecisionView } from "../api/schema";
import { append, emptyFeed, keptRows, type Feed } from "./decisions";
import { firstEventWithin, liveness, staleAfter, staleLists } from "./liveness";
import { pollEvery, Polling } from "./polling";

const signs = { startedAt: 10_000, eventAt: 0, polledAt: 0, lost: false };

test("data is stale two and a half seconds after the last event", () => {
  const received = { ...signs, eventAt: 20_000 };
  expect(liveness(received, 20_000 + staleAfter).state).toBe("live");
  const stale = liveness(received, 20_001 + staleAfter);
  expect(stale.state).toBe("stale");
  expect(stale.text).toMatch(/^stale since /);
  expect(liveness({ ...received, lost: true }, 20_100).state).toBe("stale");
  expect(liveness(received, 99_000).text).toBe(stale.text);
});

test("data without a stream is stale three seconds after the start, or after a failure", () => {
  expect(liveness(signs, 10_000 + firstEventWithin).state).toBe("connecting");
  expect(liveness(signs, 10_001 + firstEventWithin).state).toBe("stale");
  expect(liveness({ ...signs, lost: true }, 10_100).state).toBe("stale");
});

test("a poll renews the age of the data, but does not make it live", () => {
  const polled = liveness({ ...signs, polledAt: 70_000 }, 70_001);
  expect(polled.state).toBe("stale");
  expect(polled.text).not.toBe(liveness(signs, 70_001).text);
});

test("data is polled every five seconds while it is stale, one read at a time", async () => {
  let reads = 0;
  let end = () => {};
  const polling = new Polling(() => (reads++, new Promise((resolve) => (end = resolve))));
  polling.update(true, 0);
  polling.update(true, pollEvery - 1);
  expect(reads).toBe(0);
  polling.update(true, pollEvery);
  polling.update(true, 3 * pollEvery); // the first read has no answer yet
  expect(reads).toBe(1);
  end();
  await settled();
  polling.update(true, 3 * pollEvery);
  expect(reads).toBe(2);
  polling.update(false, 9 * pollEvery);
  polling.update(true, 9 * pollEvery); // stale again: it begins anew
  expect(reads).toBe(2);
});

test("failed reads are quiet and no more frequent", async () => {
  let reads = 0;
  const polling = new Polling(() => (reads++, Promise.reject(new Error("no answer"))));
  for (let now = 0; now <= 60_000; now += 500) {
    polling.update(true, now);
    await settled();
  }
  expect(reads).toBe(60_000 / pollEvery);
});

const settled = () => new Promise((resolve) => setTimeout(resolve));

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
