import { expect, test } from "vitest";
import { ago, bytes, clock, count, millis, money, percent, plural, rate, seconds, UNKNOWN } from "./format";

test("an unknown number is a dash and never zero", () => {
  for (const f of [count, rate, percent, millis, seconds, bytes, money]) {
    expect(f(undefined)).toBe(UNKNOWN);
    expect(f(null)).toBe(UNKNOWN);
    expect(f(Number.NaN)).toBe(UNKNOWN);
  }
});

test("numbers keep the digits that matter", () => {
  expect(count(9999)).toBe("9,999");
  expect(count(12_345)).toBe("12.3K");
  expect([rate(0), rate(0.04), rate(3.14), rate(57.3)]).toEqual(["0", "<0.1", "3.1", "57"]);
  expect([percent(0.314), percent(1), percent(0.1234, 1)]).toEqual(["31 %", "100 %", "12.3 %"]);
  expect([millis(0), millis(0.3), millis(183.4), millis(2345)]).toEqual(["0 ms", "<1 ms", "183 ms", "2.3 s"]);
  expect([bytes(0), bytes(2048), bytes(34_567_890)]).toEqual(["0 B", "2.0 KiB", "33 MiB"]);
  expect([money(1234.5), money(0.000123)]).toEqual(["1,234.50", "0.000123"]);
  expect([plural(1, "key"), plural(2, "key")]).toEqual(["1 key", "2 keys"]);
});

test("durations show their two largest units", () => {
  expect([seconds(7.25), seconds(59), seconds(60), seconds(90), seconds(3600), seconds(90_061)]).toEqual([
    "7.3 s",
    "59 s",
    "1 min",
    "1 min 30 s",
    "1 h",
    "1 d 1 h",
  ]);
});

test("times say how long ago they were", () => {
  const now = Date.UTC(2026, 0, 2, 12);
  expect(ago(undefined, now)).toBe("never");
  expect(ago(now, now)).toBe("now");
  expect(ago(now - 90_000, now)).toBe("1 min 30 s ago");
  expect(ago(now + 60_000, now)).toBe("in 1 min");
  expect(clock(now, new Date(now))).toMatch(/^\d\d:\d\d:\d\d$/);
  expect(clock(now - 3 * 86_400_000, new Date(now))).toMatch(/^\d{4}-\d\d-\d\d /);
});
