import type { WorkerState } from "../../api/schema";
import { ago, percent, plural, seconds } from "../../lib/format";

/** Bounds of a weight, as config.yaml has them. */
export const maxWeight = 100;

/** Lifetime is how long a changed weight stays. */
export interface Lifetime {
  id: string;
  label: string;
  /** undefined: until it is reset. */
  ttl_s: number | undefined;
}

const untilReset: Lifetime = { id: "", label: "at reset", ttl_s: undefined };

/** lifetimes are the choices of how long a changed weight stays. */
export const lifetimes: Lifetime[] = [
  untilReset,
  { id: "15m", label: "after 15 minutes", ttl_s: 900 },
  { id: "1h", label: "after 1 hour", ttl_s: 3600 },
  { id: "8h", label: "after 8 hours", ttl_s: 8 * 3600 },
];

/** lifetimeOf returns the choice with an id. */
export function lifetimeOf(id: string): Lifetime {
  return lifetimes.find((l) => l.id === id) ?? untilReset;
}

/** Restore is an override's weight, which an undo brings back. weight null: the weight of config.yaml. */
export interface Restore {
  weight: number | null;
  /** Time when the weight expires. Absent: it stays until it is reset. */
  until?: string;
}

/** restoreOf returns the weight of a worker's present override. */
export function restoreOf(w: Pick<WorkerState, "weights">): Restore {
  const { weight, until } = w.weights.override ?? {};
  if (weight === undefined) return { weight: null };
  return { weight, ...(until && { until }) };
}

/**
 * changeOf returns the request that restores a weight. It is made when the undo happens, so that the weight expires
 * when it would have expired. A weight that has expired since stays expired.
 */
export function changeOf(r: Restore, now: number): { weight: number | null; ttl_s?: number } {
  if (r.weight === null || !r.until) return { weight: r.weight };
  const left = Math.round((new Date(r.until).getTime() - now) / 1000);
  return left < 1 ? { weight: null } : { weight: r.weight, ttl_s: left };
}

/** changeTo returns the request that sets a weight. The weight of config.yaml needs no override; a drain stays. */
export function changeTo(w: Pick<WorkerState, "weights">, weight: number, ttl_s: number | undefined) {
  if (weight === w.weights.file) return { weight: null };
  return { weight, ...(ttl_s !== undefined && { ttl_s }) };
}

/** configuredWeight returns the weight that is set for a worker. A drain hides it, and does not change it. */
export function configuredWeight(w: Pick<WorkerState, "weights">): number {
  return w.weights.override?.weight ?? w.weights.file;
}

/** shareText shows a share of requests; a small one is not shown as zero. */
export function shareText(share: number | undefined): string {
  return share !== undefined && share > 0 && share < 0.005 ? "<1 %" : percent(share);
}

/** weightOf parses the text of a weight; undefined if it is none. */
export function weightOf(text: string): number | undefined {
  const clean = text.trim();
  if (!/^\d{1,3}$/.test(clean)) return undefined;
  const n = Number(clean);
  return n <= maxWeight ? n : undefined;
}

/**
 * Throttle calls f at most once per interval with the newest argument. The last argument is never lost, unless
 * cancel is called.
 */
export class Throttle<T> {
  #timer: ReturnType<typeof setTimeout> | undefined;
  #waiting: { value: T } | undefined;

  constructor(
    readonly interval: number,
    readonly f: (value: T) => void,
  ) {}

  call(value: T): void {
    if (this.#timer !== undefined) {
      this.#waiting = { value };
      return;
    }
    this.f(value);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      const waiting = this.#waiting;
      this.#waiting = undefined;
      if (waiting) this.call(waiting.value);
    }, this.interval);
  }

  cancel(): void {
    clearTimeout(this.#timer);
    this.#timer = this.#waiting = undefined;
  }
}

/** prefixHit returns the share of prompt tokens that were cached, and what the routing knows the cache by. */
export function prefixHit(w: WorkerState): { share: number | undefined; source: string } {
  const { prompt, cached } = w.totals.tokens;
  const source = w.kv_events?.state === "complete" ? "events" : "history";
  return { share: prompt > 0 ? cached / prompt : undefined, source };
}

/** roleText returns the role of a worker, and how many prompts it keeps for others if it computes any. */
export function roleText({ role, open_handovers: open }: WorkerState): string {
  return open === undefined ? (role ?? "") : `${role}, ${plural(open, "hand-over")} open`;
}

/** matches reports whether a worker has a text in its name, model, state, region or role. */
export function matches(w: WorkerState, q: string): boolean {
  const text = q.trim().toLowerCase();
  return [w.name, w.model, w.state, w.region ?? "", w.role ?? "", w.pool].some((v) => v.toLowerCase().includes(text));
}

/** shownPools returns the workers that match q by pool; a pool without any is omitted. */
export function shownPools(workers: WorkerState[], pool: string, q: string): Map<string, WorkerState[]> {
  const pools = new Map<string, WorkerState[]>();
  for (const w of workers) {
    if ((pool && w.pool !== pool) || !matches(w, q)) continue;
    pools.set(w.pool, [...(pools.get(w.pool) ?? []), w]);
  }
  return pools;
}

/** breakerText returns the state of a breaker in words. */
export function breakerText(state: string): string {
  return state.replace("_", " ");
}

/** sinceOf returns the time since when a worker is in its state: that of its drain, of its breaker or of its checks. */
export function sinceOf(w: Pick<WorkerState, "drain" | "state" | "breaker" | "since">): string | undefined {
  if (w.drain) return w.drain.since;
  return w.state === "open" || w.state === "half_open" ? w.breaker.since : w.since;
}

/** isKept reports whether the ejection cap keeps a worker in rotation although its breaker is not closed. */
export function isKept(w: Pick<WorkerState, "state" | "breaker">): boolean {
  return w.state === "up" && w.breaker.state !== "closed";
}

/** failureText returns the last failed attempt of a worker in one line. */
export function failureText(f: WorkerState["last_failure"]): string {
  if (!f) return "none";
  const status = f.status && !f.message.includes(String(f.status)) ? `${f.status} ` : "";
  return `${status}${f.message} (${ago(f.at)})`;
}

/** ageText returns the time since a moment in its largest unit, so that a table does not change each second. */
export function ageText(since: string, now: number): string {
  const age = Math.max(0, Math.floor((now - new Date(since).getTime()) / 1000));
  return seconds(age).split(" ").slice(0, 2).join(" ");
}

/** ignoresWeights reports whether a policy regards a weight only as 0 or not. */
export function ignoresWeights(policy: string | undefined): boolean {
  return policy === "round_robin" || policy === "random";
}

const costBased = ["kv_aware", "kv_overlap", "least_latency", "lmcache_aware"];

/** shareTitle says what the column of the shares shows under a policy. */
export function shareTitle(policy: string | undefined): string {
  const now = "Now: share of the attempts in the last 5 to 10 minutes.";
  if (policy === undefined || ignoresWeights(policy)) return now;
  if (!costBased.includes(policy)) return `${now} Expected: share by the weights of the workers in rotation.`;
  return `${now} Expected: nominal share by the weights. ${policy} selects by cost or score, so the share may differ.`;
}
