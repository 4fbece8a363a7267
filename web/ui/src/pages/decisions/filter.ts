import type { DecisionView } from "../../api/schema";

/** filterNames are the conditions of a filter, as in the query of GET /admin/decisions, in the order of their chips. */
export const filterNames = [
  "q",
  "tenant",
  "tier",
  "model",
  "worker",
  "outcome",
  "status",
  "reason",
  "rule",
  "code",
  "class",
  "since",
  "until",
] as const;

export type FilterName = (typeof filterNames)[number];

/** filterLabels are the names of the conditions on the page. */
export const filterLabels: Record<FilterName, string> = {
  q: "Search",
  tenant: "Tenant",
  tier: "Tier or pool",
  model: "Model",
  worker: "Worker",
  outcome: "Result",
  status: "Status",
  reason: "Reason",
  rule: "Rule",
  code: "Error code",
  class: "Class",
  since: "From",
  until: "Before",
};

/** Filter selects records that meet every condition. All values are texts, as in the address. */
export type Filter = Partial<Record<FilterName, string>>;

/** SetFilter changes conditions; an empty text removes one. */
export type SetFilter = (change: Filter) => void;

export const outcomes = ["ok", "refused", "failed", "truncated", "client_gone"] as const;

/** filterOf returns the filter in the search parameters of the page. */
export function filterOf(search: Filter & { id?: string }): Filter {
  const f: Filter = {};
  for (const name of filterNames) if (search[name]) f[name] = search[name];
  return f;
}

/**
 * conditionsOf returns the filter in which a search for a status is the condition status: its digits also occur in
 * ids. If the filter has that condition already, the search remains one for a text.
 */
export function conditionsOf(f: Filter): Filter {
  const { q = "", ...others } = f;
  return !f.status && /^\s*[1-5]\d\d\s*$/.test(q) ? { ...others, status: q.trim() } : f;
}

/** matches reports whether a filter selects a record, by the rules of decisions.Filter of the gateway. */
export function matches(f: Filter, d: DecisionView): boolean {
  return (
    same(f.tenant, d.tenant) &&
    same(f.tier, d.tier) &&
    same(f.outcome, d.outcome) &&
    same(f.rule, d.rule) &&
    same(f.class, d.class) &&
    same(f.code, d.code) &&
    (!f.model || f.model === d.model || f.model === d.requested_model) &&
    (!f.status || Number(f.status) === d.status) &&
    (!f.since || !isBefore(d.time, f.since)) &&
    (!f.until || isBefore(d.time, f.until)) &&
    matchesAttempt(f, d) &&
    matchesSearch(f.q, d)
  );
}

function same(want: string | undefined, have: string | undefined): boolean {
  return !want || want === have;
}

// One attempt must have both the worker and the reason.
function matchesAttempt(f: Filter, d: DecisionView): boolean {
  if (!f.worker && !f.reason) return true;
  const attempts = d.attempts ?? [];
  if (attempts.length === 0) return same(f.worker, d.worker) && same(f.reason, d.reason);
  return attempts.some((a) => same(f.reason, a.reason) && (same(f.worker, a.worker) || a.handover?.prefills?.some((p) => p.worker === f.worker)));
}

function matchesSearch(q: string | undefined, d: DecisionView): boolean {
  if (!q) return true;
  const text = q.toLowerCase();
  const attempts = (d.attempts ?? []).map((a) => a.worker);
  const all = [d.request_id, d.tenant, d.key, d.model, d.requested_model, d.tier, d.worker, d.code, ...attempts];
  return all.some((v) => v?.toLowerCase().includes(text));
}

/** isBefore compares two RFC 3339 times to the nanosecond; a Date has milliseconds. */
export function isBefore(a: string, b: string): boolean {
  const [x, y] = [Date.parse(a), Date.parse(b)];
  return x === y ? belowMillis(a) < belowMillis(b) : x < y;
}

/** belowMillis returns the digits of a time after its milliseconds. As texts, they compare like fractions. */
function belowMillis(time: string): string {
  return (/\.\d{3}(\d+)/.exec(time)?.[1] ?? "").replace(/0+$/, "");
}
