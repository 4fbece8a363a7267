import { useQuery } from "@tanstack/react-query";
import { useId } from "react";
import { count } from "../../lib/format";
import { Field } from "../../ui/parts";
import { tenantNamesQuery } from "./queries";

interface TenantFieldProps {
  /** What no tenant means. */
  none: string;
  value: string;
  onChange: (tenant: string) => void;
}

/** TenantField selects a tenant. If there are more tenants than one answer has, their names are searched. */
export function TenantField({ none, value, onChange }: TenantFieldProps) {
  const { names, total } = useQuery(tenantNamesQuery()).data ?? { names: [], total: 0 };
  const partial = total > names.length;
  const found = useQuery({ ...tenantNamesQuery(value), enabled: partial && value !== "" }).data;
  const list = useId();
  if (partial) {
    return (
      <Field label="Tenant" hint={`${count(names.length)} of ${count(total)} are listed: type a part of a name to see others`}>
        <input list={list} placeholder={none} spellCheck={false} value={value} onChange={(e) => onChange(e.target.value)} />
        <datalist id={list}>
          {(value && found ? found.names : names).map((t) => (
            <option key={t} value={t} />
          ))}
        </datalist>
      </Field>
    );
  }
  return (
    <Field label="Tenant">
      <select value={value} onChange={(e) => onChange(e.target.value)}>
        <option value="">{none}</option>
        {names.map((t) => (
          <option key={t}>{t}</option>
        ))}
      </select>
    </Field>
  );
}
