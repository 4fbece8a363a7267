import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { base } from "../../api/client";
import { download } from "../../lib/download";
import { PageTitle } from "../../shell/Shell";
import { DataTable } from "../../ui/DataTable";
import { Empty, Panel } from "../../ui/Panel";
import { toast } from "../../ui/Toasts";
import { columns } from "./columns";
import { Details, FetchedDetails } from "./Details";
import { auditQuery, periods, sinceOf } from "./queries";
import { Verification } from "./Verification";

const route = getRouteApi("/shell/audit");

/** AuditPage lists all changes with their authors. */
export function AuditPage() {
  const { entry, ...filter } = route.useSearch();
  const navigate = route.useNavigate();
  const log = useInfiniteQuery(auditQuery(filter));
  const rows = log.data?.pages.flatMap((p) => p.items) ?? [];
  const open = rows.find((e) => String(e.id) === entry);
  const show = (id: string | undefined) => void navigate({ search: (s) => ({ ...s, entry: id }), replace: true });
  return (
    <>
      <PageTitle note="Changes and rejected changes, with their authors.">Audit</PageTitle>
      <Verification />
      <Panel
        title="Entries"
        query={{ ...log, data: log.data && rows }}
        actions={<Filters />}
        empty={(all) => all.length === 0 && <NoEntries filtered={Object.values(filter).some(Boolean)} />}
      >
        {(all) => (
          <>
            <DataTable
              label="Audit log"
              columns={columns}
              rows={all}
              rowKey={(e) => String(e.id)}
              onOpen={(e) => show(String(e.id))}
            />
            {log.hasNextPage && (
              <p className="more">
                <button type="button" onClick={() => void log.fetchNextPage()} disabled={log.isFetchingNextPage}>
                  Load older entries
                </button>
              </p>
            )}
          </>
        )}
      </Panel>
      {open && <Details entry={open} onClose={() => show(undefined)} />}
      {entry && !open && !log.isPending && <FetchedDetails id={entry} onClose={() => show(undefined)} />}
    </>
  );
}

function NoEntries({ filtered }: { filtered: boolean }) {
  return (
    <Empty>
      {filtered ? (
        <>
          <strong>No entry matches.</strong> A filter matches whole values only. Change or remove a part of the filter.
        </>
      ) : (
        <>
          <strong>No entries.</strong> The first change through this page, the API or the command line adds an entry.
        </>
      )}
    </Empty>
  );
}

function Filters() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (change: Record<string, string>) => void navigate({ search: (s) => ({ ...s, ...change }), replace: true });
  return (
    <>
      {(["actor", "action", "target"] as const).map((name) => (
        <TextFilter key={name} name={name} value={search[name] ?? ""} onApply={(value) => set({ [name]: value })} />
      ))}
      <select aria-label="Period" value={search.since ?? ""} onChange={(e) => set({ since: e.target.value })}>
        <option value="">all times</option>
        {Object.keys(periods).map((p) => (
          <option key={p}>{p}</option>
        ))}
      </select>
      <button type="button" onClick={() => exportLog(search)}>
        Export JSONL
      </button>
    </>
  );
}

interface TextFilterProps {
  name: string;
  /** The filter in force; empty if there is none. */
  value: string;
  onApply: (value: string) => void;
}

/** TextFilter applies its text on Enter and when it loses the focus, because a part of a name matches no entry. */
function TextFilter({ name, value, onApply }: TextFilterProps) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (input.current) input.current.value = value;
  }, [value]);
  const apply = () => {
    const text = input.current?.value.trim() ?? "";
    if (text !== value) onApply(text);
  };
  return (
    <input
      ref={input}
      type="search"
      placeholder={name}
      aria-label={`Filter by ${name}`}
      defaultValue={value}
      size={14}
      onBlur={apply}
      onKeyDown={(e) => e.key === "Enter" && apply()}
      onChange={(e) => e.target.value === "" && apply()} // the button that clears a search field
    />
  );
}

/** exportLog saves all entries that the filter selects. */
function exportLog(search: Record<string, string | undefined>): void {
  const url = new URL("admin/audit", base);
  const since = sinceOf(search.since, Date.now());
  for (const [name, value] of Object.entries({ actor: search.actor, action: search.action, target: search.target, since })) {
    if (value) url.searchParams.set(name, value);
  }
  download(url, "application/x-ndjson", "audit.ndjson").catch((e: Error) => toast(e.message));
}
