import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { base } from "../../api/client";
import type { UsageRow } from "../../api/schema";
import { count, money } from "../../lib/format";
import { DataTable, type Column } from "../../ui/DataTable";
import { Empty, Panel } from "../../ui/Panel";
import { usageQuery, type GroupBy } from "./queries";

const groups: GroupBy[] = ["tier", "model", "key", "outcome"];

/** Usage shows a tenant's usage of the last 30 UTC days. */
export function Usage({ name }: { name: string }) {
  const [group, setGroup] = useState<GroupBy>();
  const usage = useQuery(usageQuery(name, group));
  return (
    <Panel
      title="Usage by UTC day"
      query={usage}
      actions={
        <>
          <select aria-label="Group by" value={group ?? ""} onChange={(e) => setGroup((e.target.value || undefined) as GroupBy)}>
            <option value="">all together</option>
            {groups.map((g) => (
              <option key={g} value={g}>
                by {g}
              </option>
            ))}
          </select>
          <button type="button" onClick={() => void saveCSV(name, group)}>
            Export CSV
          </button>
        </>
      }
      empty={(u) =>
        u.items.length === 0 && (
          <Empty>
            <strong>No usage in the last 30 days.</strong> Requests appear here a few seconds after they end.
          </Empty>
        )
      }
    >
      {(u) => (
        <DataTable
          label="Usage"
          columns={group ? [dayColumn, groupColumn(group), ...columns] : [dayColumn, ...columns]}
          rows={[...u.items].reverse()}
          rowKey={(r) => `${r.day} ${r.group ?? ""}`}
        />
      )}
    </Panel>
  );
}

const dayColumn: Column<UsageRow> = { id: "day", header: "Day", cell: (r) => r.day };

function groupColumn(group: GroupBy): Column<UsageRow> {
  return { id: "group", header: group, cell: (r) => r.group || "–" };
}

const number = (id: string, header: string, of: (r: UsageRow) => number): Column<UsageRow> => ({
  id,
  header,
  numeric: true,
  cell: (r) => count(of(r)),
});

const columns: Column<UsageRow>[] = [
  number("requests", "Requests", (r) => r.requests),
  number("refused", "Rejected", (r) => r.refused),
  number("failed", "Failed", (r) => r.failed),
  number("prompt", "Prompt tokens", (r) => r.prompt_tokens),
  number("cached", "Cached", (r) => r.cached_tokens),
  number("output", "Output tokens", (r) => r.output_tokens),
  { id: "money", header: "Money", numeric: true, cell: (r) => money(r.money) },
];

async function saveCSV(name: string, group: GroupBy | undefined): Promise<void> {
  const url = new URL(`admin/tenants/${encodeURIComponent(name)}/usage`, base);
  if (group) url.searchParams.set("group_by", group);
  const answer = await fetch(url, { headers: { Accept: "text/csv" } });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = `usage-${name}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}
