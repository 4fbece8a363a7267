// Text of numbers and times as all pages show them.

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A dash stands for a value that is unknown, so that it cannot be read as zero. */
export const UNKNOWN = "–";

type Maybe<T> = T | null | undefined;

const known = (n: Maybe<number>): n is number => n !== null && n !== undefined && Number.isFinite(n);

/** count shows whole numbers below 10,000 in full, and larger ones as 12.3K. */
export function count(n: Maybe<number>): string {
  if (!known(n)) return UNKNOWN;
  return Math.abs(n) < 10_000 ? grouped.format(n) : compact.format(n);
}

/** rate shows a number of events per second with two significant digits below 10. */
export function rate(n: Maybe<number>): string {
  if (!known(n)) return UNKNOWN;
  if (n === 0) return "0";
  if (n < 0.1) return "<0.1";
  return n < 10 ? n.toFixed(1) : count(Math.round(n));
}

/** percent shows a share between 0 and 1. */
export function percent(share: Maybe<number>, digits = 0): string {
  return known(share) ? `${(share * 100).toFixed(digits)} %` : UNKNOWN;
}

/** millis shows a duration that is given in milliseconds. */
export function millis(ms: Maybe<number>): string {
  if (!known(ms)) return UNKNOWN;
  if (ms < 1) return ms === 0 ? "0 ms" : "<1 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return seconds(ms / 1000);
}

/** seconds shows a duration with its two largest units. */
export function seconds(s: Maybe<number>): string {
  if (!known(s)) return UNKNOWN;
  if (s < 10) return `${Number(s.toFixed(1))} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const units: [number, string][] = [
    [86_400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  let rest = Math.round(s);
  const parts: string[] = [];
  for (const [size, unit] of units) {
    const n = Math.floor(rest / size);
    rest -= n * size;
    if (n > 0 || parts.length > 0) parts.push(`${n} ${unit}`);
    if (parts.length === 2) break;
  }
  return parts.filter((p) => !p.startsWith("0 ")).join(" ");
}

/** bytes shows a size with a binary unit. */
export function bytes(n: Maybe<number>): string {
  if (!known(n)) return UNKNOWN;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit++;
  }
  return `${n < 10 && unit > 0 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

/** money shows an amount in currency units with the digits that it needs, at most six. */
export function money(n: Maybe<number>): string {
  if (!known(n)) return UNKNOWN;
  return new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: n < 1 ? 6 : 2 }).format(n);
}

/** clock shows a time of today as 12:03:11, and an earlier one with its date. */
export function clock(at: Maybe<string | number | Date>, now = new Date()): string {
  if (at === null || at === undefined || at === "") return UNKNOWN;
  const t = new Date(at);
  const time = t.toLocaleTimeString("en-GB");
  return t.toDateString() === now.toDateString() ? time : `${t.toLocaleDateString("en-CA")} ${time}`;
}

/** ago shows how long ago a time was, or in how long it comes. */
export function ago(at: Maybe<string | number | Date>, now = Date.now()): string {
  if (at === null || at === undefined || at === "") return "never";
  const s = (now - new Date(at).getTime()) / 1000;
  if (Math.abs(s) < 1) return "now";
  const text = seconds(s < 0 ? Math.ceil(-s) : Math.floor(s));
  return s < 0 ? `in ${text}` : `${text} ago`;
}

/** plural shows a number with its noun. */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** resultText shows how a request or a change ended. The API says refused for rejected. */
export function resultText(result: string): string {
  return result === "refused" ? "rejected" : result.replace("_", " ");
}
