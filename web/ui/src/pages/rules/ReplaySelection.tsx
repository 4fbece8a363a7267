import { useQuery } from "@tanstack/react-query";
import { tiersQuery } from "../../api/queries";
import type { ReplayFilter } from "../../api/schema";
import { Field } from "../../ui/parts";
import { classes } from "../tenants/settings";
import { TenantField } from "./TenantField";

interface ReplaySelectionProps {
  last: string;
  onLast: (last: string) => void;
  filter: ReplayFilter;
  onFilter: (f: ReplayFilter) => void;
}

/** ReplaySelection selects the records to replay. */
export function ReplaySelection({ last, onLast, filter, onFilter }: ReplaySelectionProps) {
  const tiers = (useQuery(tiersQuery).data?.items ?? []).map((t) => t.name);
  const choices = [
    { name: "tier", label: "Tier or pool", values: tiers },
    { name: "class", label: "Class", values: [...classes] },
  ] as const;
  return (
    <div className="fields">
      <Field label="Last requests">
        <input inputMode="numeric" pattern="[1-9][0-9]{0,4}" title="A number up to 99999" value={last} onChange={(e) => onLast(e.target.value)} />
      </Field>
      <TenantField none="all" value={filter.tenant ?? ""} onChange={(tenant) => onFilter({ ...filter, tenant })} />
      {choices.map((c) => (
        <Field key={c.name} label={c.label}>
          <select value={filter[c.name] ?? ""} onChange={(e) => onFilter({ ...filter, [c.name]: e.target.value })}>
            <option value="">all</option>
            {c.values.map((v) => (
              <option key={v}>{v}</option>
            ))}
          </select>
        </Field>
      ))}
    </div>
  );
}
