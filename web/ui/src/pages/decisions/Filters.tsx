import { useEffect, useMemo, useState } from "react";
import type { DecisionView } from "../../api/schema";
import { reasonText, ruleText } from "../../lib/reasons";
import { classes } from "../tenants/settings";
import type { SetFilter } from "./DecisionsPage";
import { conditionsOf, filterNames, outcomes, type Filter, type FilterName } from "./filter";
import { distinct } from "./rows";

const labels: Record<FilterName, string> = {
  q: "Search",
  tenant: "Tenant",
  tier: "Tier or pool",
  model: "Model",
  worker: "Worker",
  outcome: "Outcome",
  status: "Status",
  reason: "Reason",
  rule: "Rule",
  code: "Error code",
  class: "Class",
  since: "From",
  until: "Before",
};

/** Values of these conditions are suggested from the rows of the list. */
const suggested: Partial<Record<FilterName, (d: DecisionView) => string | undefined>> = {
  tenant: (d) => d.tenant,
  tier: (d) => d.tier,
  model: (d) => d.model,
  worker: (d) => d.worker,
  reason: (d) => d.reason,
  rule: (d) => d.rule,
  code: (d) => d.code,
  status: (d) => String(d.status),
};

/** Suggestions of these conditions are codes, which have words. */
const words: Partial<Record<FilterName, (code: string) => string>> = {
  reason: (code) => reasonText("worker", code),
  rule: ruleText,
  code: (code) => reasonText("error", code),
};

interface FiltersProps {
  filter: Filter;
  rows: DecisionView[];
  onChange: SetFilter;
}

/** Filters edits the conditions of the list. */
export function Filters({ filter, rows, onChange }: FiltersProps) {
  const [open, setOpen] = useState(false);
  return (
    <div className="filters">
      <div className="row">
        <SearchField value={filter.q ?? ""} onChange={(q) => onChange({ q })} />
        <Choice name="outcome" values={outcomes} filter={filter} onChange={onChange} />
        <Choice name="class" values={classes} filter={filter} onChange={onChange} />
        <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "Fewer filters" : "More filters"}
        </button>
      </div>
      {open && <More filter={filter} rows={rows} onChange={onChange} />}
    </div>
  );
}

/** Typing changes the list after this time, not with every key. */
const typingPause = 300;

function SearchField({ value, onChange }: { value: string; onChange: (q: string) => void }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const t = setTimeout(() => onChange(text), typingPause);
    return () => clearTimeout(t);
  }, [text, value, onChange]);
  return (
    <input
      type="search"
      aria-label="Search requests"
      placeholder="id, tenant, model, tier, worker, code or status"
      size={42}
      maxLength={100}
      value={text}
      onChange={(e) => setText(e.target.value)}
    />
  );
}

interface ChoiceProps extends Omit<FiltersProps, "rows"> {
  name: "outcome" | "class";
  values: readonly string[];
}

function Choice({ name, values, filter, onChange }: ChoiceProps) {
  return (
    <select aria-label={labels[name]} value={filter[name] ?? ""} onChange={(e) => onChange({ [name]: e.target.value })}>
      <option value="">{name === "outcome" ? "all outcomes" : "all classes"}</option>
      {values.map((v) => (
        <option key={v} value={v}>
          {reasonText("outcome", v)}
        </option>
      ))}
    </select>
  );
}

function More({ filter, rows, onChange }: FiltersProps) {
  const [first] = useState(rows); // suggestions do not change while a person types
  return (
    <div className="fields">
      {(Object.keys(suggested) as FilterName[]).map((name) => (
        <TextField key={name} name={name} value={filter[name] ?? ""} rows={first} onChange={onChange} />
      ))}
      {(["since", "until"] as const).map((name) => (
        <label key={name} className="field">
          <span>{labels[name]}</span>
          <input
            type="datetime-local"
            step={1}
            value={localTime(filter[name])}
            onChange={(e) => onChange({ [name]: e.target.value && new Date(e.target.value).toISOString() })}
          />
        </label>
      ))}
    </div>
  );
}

interface TextFieldProps {
  name: FilterName;
  value: string;
  rows: DecisionView[];
  onChange: SetFilter;
}

function TextField({ name, value, rows, onChange }: TextFieldProps) {
  const list = useMemo(() => distinct(rows, suggested[name]!).slice(0, 50), [rows, name]);
  const set = (text: string) => text !== value && onChange({ [name]: text.trim() });
  return (
    <label className="field">
      <span>{labels[name]}</span>
      <input
        key={value}
        list={`values-${name}`}
        defaultValue={value}
        spellCheck={false}
        autoComplete="off"
        inputMode={name === "status" ? "numeric" : undefined}
        onBlur={(e) => set(e.target.value)}
        onKeyDown={(e) => e.key === "Enter" && set(e.currentTarget.value)}
        onChange={(e) => {
          // A suggestion is chosen as a whole.
          if (list.includes(e.target.value)) set(e.target.value);
        }}
      />
      <datalist id={`values-${name}`}>
        {list.map((v) => (
          <option key={v} value={v} label={words[name]?.(v)} />
        ))}
      </datalist>
    </label>
  );
}

/** localTime shows a time as an input of type datetime-local has it. */
function localTime(iso: string | undefined): string {
  if (!iso || Number.isNaN(Date.parse(iso))) return "";
  const t = new Date(iso);
  return new Date(t.getTime() - t.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** Chips shows each condition with a button that removes it. */
export function Chips({ filter, onChange }: Omit<FiltersProps, "rows">) {
  const set = filterNames.filter((name) => filter[name]);
  if (set.length === 0) return null;
  return (
    <ul className="chips" aria-label="Filters">
      {set.map((name) => (
        <li key={name} className="chip info">
          {labels[name]}: <strong>{shown(name, filter)}</strong>
          <button type="button" className="quiet" aria-label={`Remove the filter ${name}`} onClick={() => onChange({ [name]: "" })}>
            ×
          </button>
        </li>
      ))}
      {set.length > 1 && (
        <li>
          <button type="button" className="link" onClick={() => onChange(Object.fromEntries(set.map((n) => [n, ""])))}>
            Remove all
          </button>
        </li>
      )}
    </ul>
  );
}

function shown(name: FilterName, filter: Filter): string {
  const value = filter[name]!;
  if (name === "q" && conditionsOf(filter).status === value.trim()) return `status ${value.trim()}`;
  if (name === "outcome") return reasonText("outcome", value);
  if (name !== "since" && name !== "until") return value;
  const t = new Date(value);
  return Number.isNaN(t.getTime()) ? value : t.toLocaleString("en-GB");
}
