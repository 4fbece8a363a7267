import type { WorkerState } from "../../api/schema";

/** Bounds of a weight, as config.yaml has them. */
export const maxWeight = 100;

/** lifetimes are the choices of how long a changed weight stays, in seconds; undefined: until it is reset. */
export const lifetimes: { id: string; label: string; ttl_s: number | undefined }[] = [
  { id: "", label: "until reset", ttl_s: undefined },
  { id: "15m", label: "for 15 minutes", ttl_s: 900 },
  { id: "1h", label: "for 1 hour", ttl_s: 3600 },
  { id: "8h", label: "for 8 hours", ttl_s: 8 * 3600 },
];

/** Restore is the change that brings back an earlier override. */
export type Restore = { kind: "reset" } | { kind: "weight"; weight: number | null; ttl_s?: number };

/** restoreOf returns the change that brings back a worker's present override. */
export function restoreOf(w: Pick<WorkerState, "weights">, now: number): Restore {
  const o = w.weights.override;
  if (!o || (o.weight === undefined && !o.drain)) return { kind: "reset" };
  if (o.weight === undefined) return { kind: "weight", weight: null };
  if (!o.until) return { kind: "weight", weight: o.weight };
  const left = Math.floor((new Date(o.until).getTime() - now) / 1000);
  return left < 1 ? { kind: "reset" } : { kind: "weight", weight: o.weight, ttl_s: left };
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

/** matches reports whether a worker has a text in its name, model, state or region. */
export function matches(w: WorkerState, q: string): boolean {
  const text = q.trim().toLowerCase();
  return [w.name, w.model, w.state, w.region ?? "", w.pool].some((v) => v.toLowerCase().includes(text));
}
