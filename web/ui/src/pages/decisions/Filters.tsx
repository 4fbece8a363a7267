import { useEffect, useState } from "react";
import type { DecisionView } from "../../api/schema";
import { reasonText } from "../../lib/reasons";
import { classes } from "../tenants/settings";
import { filterLabels, outcomes, type Filter, type SetFilter } from "./filter";
import { FilterFields } from "./FilterFields";

export interface FiltersProps {
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
      {open && <FilterFields filter={filter} rows={rows} onChange={onChange} />}
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
    <select aria-label={filterLabels[name]} value={filter[name] ?? ""} onChange={(e) => onChange({ [name]: e.target.value })}>
      <option value="">{name === "outcome" ? "all results" : "all classes"}</option>
      {values.map((v) => (
        <option key={v} value={v}>
          {reasonText("outcome", v)}
        </option>
      ))}
    </select>
  );
}
