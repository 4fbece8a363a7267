import { useMemo, useState } from "react";
import type { DecisionView } from "../../api/schema";
import { reasonText, ruleText } from "../../lib/reasons";
import { filterLabels, type FilterName } from "./filter";
import type { FiltersProps } from "./Filters";
import { distinct } from "./rows";

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

/** FilterFields edits the conditions that are seldom needed. */
export function FilterFields({ filter, rows, onChange }: FiltersProps) {
  const [first] = useState(rows); // suggestions do not change while a person types
  return (
    <div className="fields">
      {(Object.keys(suggested) as FilterName[]).map((name) => (
        <TextField key={name} name={name} value={filter[name] ?? ""} rows={first} onChange={onChange} />
      ))}
      {(["since", "until"] as const).map((name) => (
        <label key={name} className="field">
          <span>{filterLabels[name]}</span>
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
  onChange: FiltersProps["onChange"];
}

function TextField({ name, value, rows, onChange }: TextFieldProps) {
  const list = useMemo(() => distinct(rows, suggested[name]!).slice(0, 50), [rows, name]);
  const set = (text: string) => text !== value && onChange({ [name]: text.trim() });
  return (
    <label className="field">
      <span>{filterLabels[name]}</span>
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
