import type { DecisionView } from "../../api/schema";

/** fields are the filters of the page, in the order of its chips. */
export const fields = ["q", "tenant", "tier", "worker", "model", "class", "outcome", "status", "reason", "rule", "code", "since", "until"] as const;

/** Filter selects decisions by the parameters of GET /admin/decisions. */
export type Filter = Partial<Record<(typeof fields)[number], string>>;

/** filterOf returns the filter in the search parameters of the page. */
export function filterOf(search: Partial<Record<string, string>>): Filter {
  return Object.fromEntries(fields.filter((f) => search[f]).map((f) => [f, search[f]]));
}

/** queryOf returns the query of GET /admin/decisions for a filter. */
export function queryOf(f: Filter): Record<string, string | number> {
  return { ...f, ...(f.status && { status: Number(f.status) }) };
}

/** matches reports whether a filter selects a decision, as the gateway does (decisions.Filter). */
export function matches(f: Filter, d: DecisionView): boolean {
  const same = (want: string | undefined, have: string | undefined) => !want || want === have;
  return (
    same(f.tenant, d.tenant) &&
    same(f.tier, d.tier) &&
    same(f.outcome, d.outcome) &&
    same(f.rule, d.rule) &&
    same(f.class, d.class) &&
    same(f.code, d.code) &&
    (!f.model || f.model === d.model || f.model === d.requested_model) &&
    (!f.status || Number(f.status) === d.status) &&
    (!f.since || new Date(d.time) >= new Date(f.since)) &&
    (!f.until || new Date(d.time) < new Date(f.until)) &&
    matchesAttempt(f, d) &&
    matchesSearch(f.q, d)
  );
}

function matchesAttempt(f: Filter, d: DecisionView): boolean {
  if (!f.worker && !f.reason) return true;
  const fits = (worker: string | undefined, reason: string | undefined) =>
    (!f.worker || f.worker === worker) && (!f.reason || f.reason === reason);
  const attempts = d.attempts ?? [];
  return attempts.length === 0 ? fits(d.worker, d.reason) : attempts.some((a) => fits(a.worker, a.reason));
}

function matchesSearch(q: string | undefined, d: DecisionView): boolean {
  if (!q) return true;
  const text = q.toLowerCase();
  const attempts = (d.attempts ?? []).map((a) => a.worker);
  return [d.request_id, d.tenant, d.key, d.model, d.requested_model, d.tier, d.worker, d.code, ...attempts].some((v) =>
    v?.toLowerCase().includes(text),
  );
}
