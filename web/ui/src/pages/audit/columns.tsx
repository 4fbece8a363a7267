import type { AuditView } from "../../api/schema";
import { overrideText, purgeText, targetText } from "../../lib/audit";
import { differences } from "../../lib/diff";
import { clock, resultText } from "../../lib/format";
import type { Column } from "../../ui/DataTable";
import { Badge } from "../../ui/parts";

/** columns are the columns of the log. */
export const columns: Column<AuditView>[] = [
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
  const text = overrideText(entry) ?? purgeText(entry);
  if (text) return <>{text}</>;
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
