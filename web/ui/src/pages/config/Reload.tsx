import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { base } from "../../api/client";
import { overviewQuery, queries } from "../../api/queries";
import type { ReloadAnswer } from "../../api/schema";
import { adminCurl } from "../../lib/curl";
import { clock, percent, plural } from "../../lib/format";
import { DataTable, type Column } from "../../ui/DataTable";
import { Empty, Panel, Problem } from "../../ui/Panel";
import { ChangeButton, Curl } from "../../ui/parts";
import { toast } from "../../ui/Toasts";
import { Problems } from "./Problems";
import { withLines } from "./errorLines";
import { impactText } from "./override";
import { configQuery, previewQuery, reload } from "./queries";

/** Reload shows what the file on disk would change, and applies exactly that. */
export function Reload() {
  const found = useQuery(previewQuery);
  const { refetch } = found;
  const attention = useQuery(overviewQuery).data?.attention ?? [];
  const differs = attention.filter((a) => a.link === "config").map((a) => a.message).join();
  const known = useRef(differs);
  useEffect(() => {
    if (differs === known.current) return;
    known.current = differs;
    void refetch();
  }, [differs, refetch]);
  const readAt = Math.max(found.dataUpdatedAt, found.errorUpdatedAt);
  return (
    <Panel
      title="Preview of a reload"
      // A preview of an older file must not stay below the errors of the present one.
      query={{ ...found, data: found.error ? undefined : found.data, error: withLines(found.error, true) }}
      actions={
        <>
          {readAt > 0 && <small className="muted">read at {clock(readAt)}</small>}
          <button type="button" onClick={() => void refetch()} disabled={found.isFetching}>
            Read the file again
          </button>
        </>
      }
    >
      {(p) => (
        <div className="stack">
          <Preview preview={p} />
          <Problems problems={p.problems} />
          {p.changes.length > 0 && <Apply preview={p} onRead={() => void refetch()} />}
        </div>
      )}
    </Panel>
  );
}

/** Apply reloads the file if it is still the one that was previewed. */
function Apply({ preview: p, onRead }: { preview: ReloadAnswer; onRead: () => void }) {
  const apply = useMutation({
    mutationFn: reload,
    onSuccess: (r) => {
      toast(`Reloaded: ${plural(r.changes.length, "change")}, generation ${r.generation}.`);
      void queries.invalidateQueries();
    },
  });
  return (
    <div className="body stack">
      <div className="row">
        <ChangeButton className="primary" onClick={() => apply.mutate(p.to_hash)} disabled={apply.isPending}>
          Apply {plural(p.changes.length, "change")}
        </ChangeButton>
        <small className="muted">
          Requests in flight keep the old configuration. A file with errors is rejected, and so is a file that changed after
          this preview.
        </small>
      </div>
      {apply.error && <Problem error={withLines(apply.error)} retry={onRead} />}
      <Curl text={`${adminCurl(base, "POST", "admin/reload")} -H 'If-Match: "${p.to_hash}"'`} />
    </div>
  );
}

function Preview({ preview: p }: { preview: ReloadAnswer }) {
  if (p.changes.length === 0) {
    return (
      <Empty>
        <strong>No changes.</strong> The file on disk and the configuration in force are equivalent.
      </Empty>
    );
  }
  return <Changes preview={p} />;
}

function Changes({ preview: p }: { preview: ReloadAnswer }) {
  const overrides = useQuery(configQuery).data?.overrides ?? [];
  const drained = new Set(overrides.filter((o) => o.drain).map((o) => o.worker));
  const moved = Object.entries(p.impact.affinity_moved).filter(([, share]) => share > 0);
  return (
    <>
      <DataTable label="Changes" columns={columns} rows={p.changes} rowKey={(c) => c.path + c.op} />
      <dl className="facts body">
        <dt>Workers added</dt>
        <dd>{p.impact.workers_added.join(", ") || "none"}</dd>
        <dt>Workers removed</dt>
        <dd>{p.impact.workers_removed.join(", ") || "none"}</dd>
        <dt>Prompts with another preferred worker</dt>
        <dd>
          {moved.length === 0
            ? "none"
            : moved.map(([pool, share]) => `${percent(share, 1)} of the prompts of ${pool}`).join("; ")}
        </dd>
        {p.impact.overrides.length > 0 && (
          <>
            <dt>Live overrides</dt>
            <dd>{p.impact.overrides.map((o) => impactText(o, drained.has(o.worker))).join("; ")}</dd>
          </>
        )}
        <dt>After a restart</dt>
        <dd>{p.impact.restart_needed.join(", ") || "nothing: all changes apply at once"}</dd>
      </dl>
    </>
  );
}

type Change = ReloadAnswer["changes"][number];

const effects: Record<string, string> = {
  live: "at once",
  drain: "at once; affected workers finish their requests",
  restart: "after a restart",
};

const columns: Column<Change>[] = [
  { id: "path", header: "Setting", cell: (c) => <code>{c.path}</code> },
  { id: "op", header: "Change", cell: (c) => c.op },
  { id: "old", header: "In force", cell: (c) => <span className="clip">{c.old ?? "–"}</span> },
  { id: "new", header: "In the file", cell: (c) => <span className="clip">{c.new ?? "–"}</span> },
  { id: "effect", header: "Takes effect", cell: (c) => effects[c.effect] ?? c.effect },
];
