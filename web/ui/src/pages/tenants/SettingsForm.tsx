import { useQuery } from "@tanstack/react-query";
import { ApiError } from "../../api/client";
import { tiersQuery } from "../../api/queries";
import { Field } from "../../ui/parts";
import { classes, errorsOf, limitFields, namesOf, withTier, type Form } from "./settings";

interface SettingsFormProps {
  form: Form;
  onChange: (form: Form) => void;
  error: Error | null;
  disabled?: boolean;
}

/** SettingsForm has the limits and rights of a tenant. */
export function SettingsForm({ form, onChange, error, disabled }: SettingsFormProps) {
  const local = errorsOf(form);
  const about = (name: string) => local[name] ?? (error instanceof ApiError ? error.field(name) : undefined);
  const set = (change: Partial<Form>) => onChange({ ...form, ...change });
  return (
    <fieldset className="plain stack" disabled={disabled}>
      <fieldset>
        <legend>Limits; empty means no limit</legend>
        <div className="fields">
          {limitFields.map((f) => (
            <Field key={f.name} label={f.label} hint={f.hint} error={about(`limits.${f.name}`)}>
              <input
                inputMode="decimal"
                value={form.limits[f.name] ?? ""}
                onChange={(e) => set({ limits: { ...form.limits, [f.name]: e.target.value } })}
              />
            </Field>
          ))}
        </div>
      </fieldset>
      <fieldset>
        <legend>Permissions</legend>
        <Rights form={form} set={set} about={about} />
      </fieldset>
      <fieldset>
        <legend>Behaviour</legend>
        <Behaviour form={form} set={set} about={about} />
      </fieldset>
    </fieldset>
  );
}

interface PartProps {
  form: Form;
  set: (change: Partial<Form>) => void;
  about: (name: string) => string | undefined;
}

function Rights({ form, set, about }: PartProps) {
  return (
    <div className="stack">
      <Tiers form={form} set={set} about={about} />
      <Models form={form} set={set} about={about} />
      <Classes form={form} set={set} about={about} />
    </div>
  );
}

/** Tiers has a check box for each tier and pool, and for each permitted name that no longer exists. */
function Tiers({ form, set, about }: PartProps) {
  const all = (useQuery(tiersQuery).data?.items ?? []).map((t) => t.name);
  const chosen = form.tiers;
  const old = (chosen ?? []).filter((t) => !all.includes(t));
  const error = about("tiers");
  return (
    <div className="stack tight" role="group" aria-label="Tiers and pools">
      <label className="check">
        <input type="checkbox" checked={chosen === null} onChange={(e) => set({ tiers: e.target.checked ? null : all })} />
        All tiers and pools, also later ones
      </label>
      {chosen !== null && (
        <div className="row">
          {[...all, ...old].map((t) => (
            <label key={t} className="check">
              <input
                type="checkbox"
                checked={chosen.includes(t)}
                onChange={(e) => set({ tiers: withTier(chosen, t, e.target.checked, all) })}
              />
              {t}
              {old.includes(t) && <span className="chip warn">does not exist</span>}
            </label>
          ))}
        </div>
      )}
      {chosen?.length === 0 && <small className="muted">None: each request is rejected.</small>}
      {error && (
        <em className="bad" role="alert">
          {error}
        </em>
      )}
    </div>
  );
}

/** Models has the names and patterns of the permitted models, and shows which models they match. */
function Models({ form, set, about }: PartProps) {
  const models = (useQuery(tiersQuery).data?.items ?? []).flatMap((t) => t.models);
  const patterns = form.models === null ? [] : namesOf(form.models);
  const permitted = [...new Set(models.filter((m) => patterns.some((p) => globMatches(p, m))))];
  const hint = patterns.length === 0 ? "None: each request is rejected" : `Matches ${permitted.join(", ") || "no model of the tiers"}`;
  return (
    <div className="stack tight">
      <label className="check">
        <input type="checkbox" checked={form.models === null} onChange={(e) => set({ models: e.target.checked ? null : "" })} />
        All models
      </label>
      {form.models !== null && (
        <Field label="Models" hint={`Names or patterns such as llama-*. ${hint}`} error={about("models")}>
          <input value={form.models} onChange={(e) => set({ models: e.target.value })} spellCheck={false} />
        </Field>
      )}
    </div>
  );
}

function Classes({ form, set, about }: PartProps) {
  return (
    <div className="fields">
      <Field label="Highest class" error={about("priority")}>
        <ClassSelect value={form.priority} onChange={(priority) => set({ priority })} />
      </Field>
      <Field label="Default class" error={about("default_priority")}>
        <ClassSelect value={form.default_priority} onChange={(default_priority) => set({ default_priority })} />
      </Field>
      <Field label="Weight" hint="Share of the tokens while requests of several tenants wait" error={about("weight")}>
        <input inputMode="numeric" value={form.weight} onChange={(e) => set({ weight: e.target.value })} />
      </Field>
    </div>
  );
}

/** globMatches reports whether a name matches a pattern, in which * stands for any text. */
function globMatches(pattern: string, name: string): boolean {
  const escaped = pattern.replaceAll(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*");
  return new RegExp(`^${escaped}$`).test(name);
}

function ClassSelect({ value, onChange }: { value: Form["priority"]; onChange: (c: Form["priority"]) => void }) {
  return (
    <select value={value} onChange={(e) => onChange(e.target.value as Form["priority"])}>
      {classes.map((c) => (
        <option key={c}>{c}</option>
      ))}
    </select>
  );
}

const switches: { name: "disabled" | "isolate_cache" | "response_cache" | "degrade" | "fail_closed"; label: string }[] = [
  { name: "disabled", label: "Disabled: every request of this tenant is rejected" },
  { name: "isolate_cache", label: "Isolated cache: cached prefixes are not shared with other tenants" },
  { name: "response_cache", label: "Response cache: answers are kept, in tiers and pools with a response cache" },
  { name: "degrade", label: "Degrade: over a money budget, requests move to a cheaper tier" },
  { name: "fail_closed", label: "Fail closed: without Redis, requests are rejected" },
];

function Behaviour({ form, set, about }: PartProps) {
  return (
    <div className="stack tight">
      {switches.map((s) => (
        <label key={s.name} className="check">
          <input type="checkbox" checked={form[s.name]} onChange={(e) => set({ [s.name]: e.target.checked })} />
          {s.label}
          {about(s.name) && <em role="alert">{about(s.name)}</em>}
        </label>
      ))}
    </div>
  );
}
