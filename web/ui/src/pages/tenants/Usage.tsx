import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { base } from "../../api/client";
import type { UsageRow, UsageView } from "../../api/schema";
import { download } from "../../lib/download";
import { count, money, percent } from "../../lib/format";
import { DataTable, type Column } from "../../ui/DataTable";
import { Empty, Panel } from "../../ui/Panel";
import { Bar } from "../../ui/parts";
import { toast } from "../../ui/Toasts";
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
          <button type="button" onClick={() => saveCSV(name, group)}>
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
          columns={[
            dayColumn,
            ...(group ? [groupColumn(group)] : []),
            ...columns,
            ...(u.items.some((r) => r.cached_requests) ? savings : []),
            ...(group ? [] : limitColumns(u.limits)),
          ]}
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

/** savings are the columns of the response cache, for tenants that it has answered. */
const savings: Column<UsageRow>[] = [
  number("cached_requests", "Kept answers", (r) => r.cached_requests),
  { id: "saved", header: "Saved", numeric: true, cell: (r) => money(r.saved) },
];

/** limitColumns compare a day with the limits of the tenant per day. */
function limitColumns(limits: UsageView["limits"]): Column<UsageRow>[] {
  const { day_tokens, day_money } = limits ?? {};
  const columns: Column<UsageRow>[] = [];
  if (day_tokens) {
    columns.push({
      id: "day_tokens",
      header: "Use of the token limit",
      cell: (r) => {
        const used = r.prompt_tokens + r.output_tokens;
        return <Bar value={used} max={day_tokens} text={percent(used / day_tokens)} label="Tokens against the limit per day" />;
      },
    });
  }
  if (day_money) {
    columns.push({
      id: "day_money",
      header: "Use of the money limit",
      cell: (r) => {
        const used = r.money ?? 0;
        return <Bar value={used} max={day_money} text={percent(used / day_money)} label="Money against the limit per day" />;
      },
    });
  }
  return columns;
}

function saveCSV(name: string, group: GroupBy | undefined): void {
  const url = new URL(`admin/tenants/${encodeURIComponent(name)}/usage`, base);
  if (group) url.searchParams.set("group_by", group);
  download(url, "text/csv", `usage-${name}.csv`).catch((e: Error) => toast(e.message));
}
