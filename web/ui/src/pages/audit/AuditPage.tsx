import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { api, base, result } from "../../api/client";
import type { AuditView } from "../../api/schema";
import { overrideText, targetText } from "../../lib/audit";
import { differences } from "../../lib/diff";
import { download } from "../../lib/download";
import { clock, count, resultText } from "../../lib/format";
import { PageTitle } from "../../shell/Shell";
import { DataTable, type Column } from "../../ui/DataTable";
import { Dialog } from "../../ui/Dialog";
import { Empty, Panel, Problem } from "../../ui/Panel";
import { Badge, CopyButton } from "../../ui/parts";
import { toast } from "../../ui/Toasts";
import { auditQuery, periods, sinceOf } from "./queries";

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
        empty={(all) =>
          all.length === 0 && (
            <Empty>
              {Object.values(filter).some(Boolean) ? (
                <>
                  <strong>No entry matches.</strong> Remove a part of the filter.
                </>
              ) : (
                <>
                  <strong>No entries.</strong> The first change through this page, the API or the command line adds an entry.
                </>
              )}
            </Empty>
          )
        }
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
    </>
  );
}

function Filters() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (change: Record<string, string>) => void navigate({ search: (s) => ({ ...s, ...change }), replace: true });
  return (
    <>
      {(["actor", "action", "target"] as const).map((name) => (
        <input
          key={name}
          type="search"
          placeholder={name}
          aria-label={`Filter by ${name}`}
          defaultValue={search[name]}
          size={14}
          onChange={(e) => set({ [name]: e.target.value })}
        />
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

/** exportLog saves all entries that the filter selects. */
function exportLog(search: Record<string, string | undefined>): void {
  const url = new URL("admin/audit", base);
  const since = sinceOf(search.since, Date.now());
  for (const [name, value] of Object.entries({ actor: search.actor, action: search.action, target: search.target, since })) {
    if (value) url.searchParams.set(name, value);
  }
  download(url, "application/x-ndjson", "audit.ndjson").catch((e: Error) => toast(e.message));
}

const columns: Column<AuditView>[] = [
  { id: "at", header: "Time", value: (e) => e.at, cell: (e) => <span className="num">{clock(e.at)}</span> },
  {
    id: "actor",
    header: "Actor",
    value: (e) => e.actor,
    cell: (e) => (
      <>
        {e.actor} <small className="muted">{e.via}</small>
      </>
    ),
  },
  { id: "action", header: "Action", value: (e) => e.action, cell: (e) => <code>{e.action}</code> },
  { id: "target", header: "Target", value: (e) => e.target, cell: (e) => targetText(e) },
  { id: "change", header: "Change", cell: (e) => <Change entry={e} /> },
  {
    id: "outcome",
    header: "Result",
    value: (e) => e.outcome,
    cell: (e) => <Badge tone={e.outcome === "ok" ? "ok" : "err"}>{resultText(e.outcome)}</Badge>,
  },
];

function Change({ entry }: { entry: AuditView }) {
  const override = overrideText(entry);
  if (override) return <>{override}</>;
  if (entry.before === undefined && entry.after !== undefined) return <>created</>;
  if (entry.before !== undefined && entry.after === undefined) return <>removed</>;
  const all = differences(entry.before, entry.after).filter((d) => d.path !== "version" && !d.path.endsWith("_at"));
  const first = all[0];
  if (!first) return null;
  return (
    <span className="clip">
      <code>{first.path}</code> {first.before ?? "unset"} → {first.after ?? "unset"}
      {all.length > 1 && <small className="muted"> and {all.length - 1} more</small>}
    </span>
  );
}

function Details({ entry, onClose }: { entry: AuditView; onClose: () => void }) {
  return (
    <Dialog title={`${entry.action} ${targetText(entry)}`} drawer onClose={onClose}>
      <dl className="facts">
        <dt>Time</dt>
        <dd>{new Date(entry.at).toISOString()}</dd>
        <dt>Actor</dt>
        <dd>
          {entry.actor} {entry.role && `(${entry.role})`} by {entry.via}
        </dd>
        <dt>Address</dt>
        <dd>{entry.ip || "–"}</dd>
        <dt>Request</dt>
        <dd>{entry.request_id || "–"}</dd>
        <dt>Result</dt>
        <dd>{resultText(entry.outcome)}</dd>
        <dt>Hash</dt>
        <dd>
          <code>{entry.hash}</code> <CopyButton text={entry.hash} />
        </dd>
      </dl>
      <table className="spaced" aria-label="Changed values">
        <thead>
          <tr>
            <th scope="col">Value</th>
            <th scope="col">Before</th>
            <th scope="col">After</th>
          </tr>
        </thead>
        <tbody>
          {differences(entry.before, entry.after).map((d) => (
            <tr key={d.path}>
              <td>
                <code>{d.path}</code>
              </td>
              <td className="wrap">{d.before ?? "–"}</td>
              <td className="wrap">{d.after ?? "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Dialog>
  );
}

/** Verification checks on request that no entry of the log was changed, inserted or removed. */
function Verification() {
  const check = useMutation({ mutationFn: () => result(api.POST("/admin/audit/verify")) });
  return (
    <div className="row">
      <button type="button" onClick={() => check.mutate()} disabled={check.isPending}>
        {check.isPending ? "Verifying…" : "Verify the chain"}
      </button>
      <span role="status">
        {check.data &&
          (check.data.valid ? (
            <Badge tone="ok">{count(check.data.entries)} entries, none changed, inserted or removed</Badge>
          ) : (
            <Badge tone="err">the chain is broken at entry {check.data.broken_at}</Badge>
          ))}
        {!check.data && <span className="muted">Each entry contains the hash of the entry before it.</span>}
      </span>
      {check.error && <Problem error={check.error} />}
    </div>
  );
}
