import { reasonText } from "../../lib/reasons";
import { conditionsOf, filterLabels, filterNames, type Filter, type FilterName } from "./filter";
import type { FiltersProps } from "./Filters";

/** Chips shows each condition with a button that removes it. */
export function Chips({ filter, onChange }: Omit<FiltersProps, "rows">) {
  const set = filterNames.filter((name) => filter[name]);
  if (set.length === 0) return null;
  return (
    <ul className="chips" aria-label="Filters">
      {set.map((name) => (
        <li key={name} className="chip info">
          {filterLabels[name]}: <strong>{shown(name, filter)}</strong>
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
