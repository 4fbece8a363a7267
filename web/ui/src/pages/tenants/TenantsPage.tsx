import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import type { TenantView } from "../../api/schema";
import { ago, count, plural } from "../../lib/format";
import { PageTitle } from "../../shell/Shell";
import { DataTable, type Column } from "../../ui/DataTable";
import { Empty, Panel } from "../../ui/Panel";
import { Badge, ChangeButton } from "../../ui/parts";
import { CreateTenant } from "./CreateTenant";
import { LimitBars } from "./LimitBars";
import { rightsText } from "./settings";
import { listQuery, tenantQuery } from "./queries";
import { TenantDrawer } from "./TenantDrawer";
import "./tenants.css";

const route = getRouteApi("/shell/tenants");

/** TenantsPage lists the tenants, and changes them and their keys. */
export function TenantsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (change: Partial<typeof search>) => void navigate({ search: (s) => ({ ...s, ...change }), replace: true });
  const { tenants, rows, partial } = useTenants(search.q ?? "");
  const listed = rows.find((t) => t.name === search.tenant) ?? tenants.data?.items.find((t) => t.name === search.tenant);
  const other = useQuery({ ...tenantQuery(search.tenant ?? ""), enabled: partial && search.tenant !== undefined && !listed });
  const open = listed ?? (search.tenant === undefined ? undefined : other.data);
  return (
    <>
      <PageTitle note="Teams and applications with their keys, limits and usage.">Tenants</PageTitle>
      <Panel
        title="Tenants"
        query={tenants}
        actions={
          <>
            <input
              type="search"
              className="filter"
              placeholder="name, key, tier or model"
              aria-label="Filter tenants"
              value={search.q ?? ""}
              onChange={(e) => set({ q: e.target.value })}
            />
            <ChangeButton className="primary" onClick={() => set({ tab: "create", tenant: undefined })}>
              Create tenant
            </ChangeButton>
          </>
        }
        empty={(page) =>
          page.items.length === 0 && (
            <Empty>
              <strong>No tenants.</strong> Create one with its first key, or run{" "}
              <code>tierway keys create --tenant NAME</code>.
            </Empty>
          )
        }
      >
        {(page) => (
          <>
            {partial && (
              <p className="body muted" role="status">
                {count(page.items.length)} of {count(page.total)} tenants: search a name to see others.
              </p>
            )}
            <DataTable
              label="Tenants"
              columns={columns}
              rows={rows}
              rowKey={(t) => t.name}
              sort={search.sort ?? "name"}
              onSort={(sort) => set({ sort })}
              onOpen={(t) => set({ tenant: t.name, tab: undefined })}
              rowClass={(t) => (t.disabled ? "muted" : undefined)}
            />
          </>
        )}
      </Panel>
      {search.tab === "create" && <CreateTenant onClose={() => set({ tab: undefined })} />}
      {open && <TenantDrawer tenant={open} onClose={() => set({ tenant: undefined, tab: undefined })} />}
    </>
  );
}

/**
 * useTenants returns the first tenants, and the rows that match q. partial: there are more tenants than one answer has,
 * so the server searches the names as well.
 */
function useTenants(q: string) {
  const tenants = useQuery(listQuery());
  const first = tenants.data;
  const partial = first !== undefined && first.total > first.items.length;
  const found = useQuery({ ...listQuery(q.trim()), enabled: partial && q.trim() !== "" }).data;
  const all = partial && q.trim() ? [...first.items, ...(found?.items ?? [])] : (first?.items ?? []);
  const byName = new Map(all.filter((t) => matches(t, q)).map((t) => [t.name, t]));
  return { tenants, rows: [...byName.values()], partial };
}

/** matches reports whether a tenant has a text in its name, keys, tiers or models. */
export function matches(t: TenantView, q: string): boolean {
  const text = q.trim().toLowerCase();
  const keys = t.key_list.flatMap((k) => [k.id, k.hint, k.name ?? "", ...(k.tiers ?? []), ...(k.models ?? [])]);
  return [t.name, ...keys, ...(t.tiers ?? []), ...(t.models ?? [])].some((v) => v.toLowerCase().includes(text));
}

const columns: Column<TenantView>[] = [
  { id: "name", header: "Name", value: (t) => t.name, cell: (t) => t.name },
  {
    id: "state",
    header: "State",
    value: (t) => (t.disabled ? 1 : 0),
    cell: (t) => (
      <>
        {t.disabled ? <Badge tone="off">disabled</Badge> : <Badge tone="ok">active</Badge>}
        {t.from_config && <small className="muted"> config.yaml</small>}
      </>
    ),
  },
  { id: "keys", header: "Keys", value: (t) => t.keys, cell: (t) => <KeyCounts tenant={t} /> },
  {
    id: "rights",
    header: "Tiers and models",
    cell: (t) => (
      <span className="clip">
        {rightsText(t)}
      </span>
    ),
  },
  { id: "limits", header: "Usage against limits", cell: (t) => <LimitBars now={t.now} /> },
  {
    id: "today",
    header: "Requests today",
    value: (t) => t.today?.requests,
    cell: (t) => count(t.today?.requests),
    numeric: true,
  },
  {
    id: "refused",
    header: "Rejected",
    value: (t) => t.today?.refused,
    cell: (t) => <span className={t.today?.refused ? "bad" : undefined}>{count(t.today?.refused)}</span>,
    numeric: true,
  },
  {
    id: "used",
    header: "Last used",
    value: (t) => t.last_used_at ?? "",
    cell: (t) => (t.last_used_at ? ago(t.last_used_at) : <span className="muted">{t.from_config ? "–" : "never"}</span>),
  },
];

function KeyCounts({ tenant: t }: { tenant: TenantView }) {
  if (t.keys === 0) return <Badge tone="warn">no valid key</Badge>;
  return (
    <>
      {plural(t.keys, "key")}
      {t.key_states.expiring > 0 && <span className="chip warn">{t.key_states.expiring} expiring</span>}
      {t.key_states.grace > 0 && <span className="chip">{t.key_states.grace} in grace</span>}
    </>
  );
}
