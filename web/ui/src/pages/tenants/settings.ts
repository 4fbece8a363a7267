import type { LimitSettings, Tenant, TenantSettings } from "../../api/schema";

type LimitName = keyof NonNullable<LimitSettings>;

/** limitFields are the limits in the order of the form. */
export const limitFields: { name: LimitName; label: string; hint: string; money?: boolean }[] = [
  { name: "rpm", label: "Requests per minute", hint: "" },
  { name: "rps", label: "Requests per second", hint: "" },
  { name: "burst", label: "Burst", hint: "Requests at once; empty: the requests of 10 s, or of 1 s with a limit per second" },
  { name: "tpm", label: "Tokens per minute", hint: "Prompts and answers" },
  { name: "token_burst", label: "Token burst", hint: "Tokens at once; empty: the tokens of one minute" },
  { name: "concurrent", label: "Concurrent requests", hint: "" },
  { name: "day_tokens", label: "Tokens per UTC day", hint: "" },
  { name: "month_tokens", label: "Tokens per UTC month", hint: "" },
  { name: "day_money", label: "Money per UTC day", hint: "In the unit of the tiers' prices", money: true },
  { name: "month_money", label: "Money per UTC month", hint: "In the unit of the tiers' prices", money: true },
];

export const classes = ["interactive", "background", "batch"] as const;
type ClassName = (typeof classes)[number];

/** Form holds the settings of a tenant as text. */
export interface Form {
  limits: Partial<Record<LimitName, string>>;
  /** null: all tiers and pools, also later ones. */
  tiers: string[] | null;
  /** Names and patterns; null: all models. */
  models: string | null;
  priority: ClassName;
  default_priority: ClassName;
  weight: string;
  disabled: boolean;
  isolate_cache: boolean;
  response_cache: boolean;
  degrade: boolean;
  fail_closed: boolean;
}

export const emptyForm: Form = {
  limits: {},
  tiers: null,
  models: null,
  priority: "interactive",
  default_priority: "interactive",
  weight: "1",
  disabled: false,
  isolate_cache: false,
  response_cache: false,
  degrade: false,
  fail_closed: false,
};

/** formOf returns the form of a tenant's settings. */
export function formOf(t: Tenant): Form {
  const limits: Form["limits"] = {};
  for (const { name } of limitFields) {
    const value = t.limits?.[name];
    if (value) limits[name] = String(value);
  }
  return {
    limits,
    tiers: t.tiers ?? null,
    models: t.models?.join(", ") ?? null,
    priority: t.priority ?? "interactive",
    default_priority: t.default_priority ?? t.priority ?? "interactive",
    weight: String(t.weight ?? 1),
    disabled: t.disabled ?? false,
    isolate_cache: t.isolate_cache ?? false,
    response_cache: t.response_cache ?? false,
    degrade: t.degrade ?? false,
    fail_closed: t.fail_closed ?? false,
  };
}

/** numberOf parses a limit such as 1,000, 10k or 2.5M. An empty text is null: no limit. */
export function numberOf(text: string): number | null | undefined {
  const clean = text.trim().replaceAll(/[,_ ]/g, "");
  if (clean === "") return null;
  const m = /^(\d+(?:\.\d+)?)([kKmMgG]?)$/.exec(clean);
  if (!m) return undefined;
  const exponent = { "": 0, k: 3, m: 6, g: 9 }[m[2]!.toLowerCase()] ?? 0;
  return Number(`${m[1]}e${exponent}`); // a product such as 4.1 * 1e6 would not be whole
}

/** namesOf parses names that are separated by commas or spaces. */
export function namesOf(text: string): string[] {
  return text.split(/[\s,]+/).filter(Boolean);
}

/** withTier returns the permitted tiers with one more, or without it, in the order of all tiers. */
export function withTier(tiers: string[], name: string, on: boolean, all: string[]): string[] {
  const wanted = on ? [...tiers, name] : tiers.filter((t) => t !== name);
  return [...all.filter((t) => wanted.includes(t)), ...wanted.filter((t) => !all.includes(t))];
}

/** rightsText returns what a tenant or key may use in one line. */
export function rightsText({ tiers, models }: { tiers?: string[] | null; models?: string[] | null }): string {
  const shown = tiers ? tiers.join(", ") || "no tier" : "all tiers";
  return models ? `${shown}; ${models.join(", ") || "no model"}` : shown;
}

/** errorsOf returns the messages about fields that cannot be sent, by field. */
export function errorsOf(form: Form): Record<string, string> {
  const errors: Record<string, string> = {};
  for (const { name, label, money } of limitFields) {
    const value = numberOf(form.limits[name] ?? "");
    if (value === undefined || (value !== null && !money && !Number.isInteger(value))) {
      errors[`limits.${name}`] = `${label}: enter ${money ? "an amount" : "a whole number"} such as 1000 or 10k; leave it empty for no limit.`;
    }
  }
  if (!/^[1-9]\d{0,5}$/.test(form.weight.trim())) errors.weight = "Weight: enter a whole number from 1.";
  return errors;
}

/** bodyOf returns the settings of a form as the API takes them. */
export function bodyOf(form: Form): TenantSettings {
  const limits: Record<string, number | null> = {};
  for (const { name } of limitFields) limits[name] = numberOf(form.limits[name] ?? "") ?? null;
  return {
    limits,
    tiers: form.tiers,
    models: form.models === null ? null : namesOf(form.models),
    priority: form.priority,
    default_priority: form.default_priority,
    weight: Number(form.weight),
    disabled: form.disabled,
    isolate_cache: form.isolate_cache,
    response_cache: form.response_cache,
    degrade: form.degrade,
    fail_closed: form.fail_closed,
  };
}

/** patchOf returns the settings that differ between two forms, as a JSON merge patch. */
export function patchOf(before: Form, after: Form): TenantSettings {
  const [was, is] = [bodyOf(before) as Record<string, unknown>, bodyOf(after) as Record<string, unknown>];
  const patch: Record<string, unknown> = {};
  for (const name of Object.keys(is)) {
    if (name === "limits") continue;
    if (JSON.stringify(was[name]) !== JSON.stringify(is[name])) patch[name] = is[name];
  }
  const [old, now] = [was.limits as Record<string, unknown>, is.limits as Record<string, unknown>];
  const limits = Object.fromEntries(Object.keys(now).filter((n) => old[n] !== now[n]).map((n) => [n, now[n]]));
  if (Object.keys(limits).length > 0) patch.limits = limits;
  return patch as TenantSettings;
}

/** newSettings returns the settings of a form that differ from a new tenant's. */
export function newSettings(form: Form): TenantSettings {
  return patchOf(emptyForm, form);
}
