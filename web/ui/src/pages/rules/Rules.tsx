import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { RulesView } from "../../api/schema";
import { count, seconds } from "../../lib/format";
import { DataTable, type Column } from "../../ui/DataTable";
import { Empty, Panel } from "../../ui/Panel";
import { rulesQuery } from "./queries";

/** Rules shows the classifier in force: its rules in their order, and how often each decided. */
export function Rules() {
  const rules = useQuery({ ...rulesQuery, refetchInterval: 10_000 });
  return (
    <>
      <Panel
        title="Rules of the classifier"
        query={rules}
        actions={
          <Link to="/rules" search={{ tab: "playground" }} className="button">
            Try a request
          </Link>
        }
        empty={(r) =>
          r.rules.length === 0 && (
            <Empty>
              <strong>No rules.</strong> Every request without a tier of its own gets {r.default}. Rules are under
              classifier: in config.yaml.
            </Empty>
          )
        }
      >
        {(r) => (
          <>
            <p className="body">
              {r.mode === "max"
                ? "All rules are checked, and the highest tier that one of them selects applies."
                : "Rules are checked in this order, and the first one that selects a tier applies."}{" "}
              Without a match, <strong>{r.default}</strong> applies.{" "}
              {r.sticky && `A chat keeps its tier for ${seconds(r.sticky_idle_s)} after its last request. `}
              If a tier has no worker up, its requests {unavailable[r.unavailable]}.
            </p>
            <DataTable label="Rules" columns={columns} rows={r.rules.map((x, i) => ({ ...x, order: i + 1 }))} rowKey={(x) => String(x.order)} />
          </>
        )}
      </Panel>
      <Panel title="Model names" query={rules} rows={2}>
        {(r) => <DataTable label="Model names" columns={aliasColumns} rows={r.aliases} rowKey={(a) => a.name} />}
      </Panel>
    </>
  );
}

const unavailable: Record<RulesView["unavailable"], string> = {
  up: "move to the next higher tier",
  down: "move to the next lower tier",
  refuse: "are rejected with 503",
};

type Row = RulesView["rules"][number] & { order: number };

const columns: Column<Row>[] = [
  { id: "order", header: "#", cell: (r) => r.order, numeric: true },
  { id: "rule", header: "Rule", cell: (r) => r.rule },
  { id: "tier", header: "Selects", cell: (r) => r.tier },
  {
    id: "condition",
    header: "If",
    cell: (r) =>
      r.threshold !== undefined ? (
        `more than ${count(r.threshold)} tokens`
      ) : r.rule === "score" ? (
        r.score === undefined ? "any lower score" : `a score above ${r.score}`
      ) : r.share !== undefined ? (
        `${Number((100 * r.share).toPrecision(4))} % of the prompts, by score`
      ) : (
        <span className="clip" title={(r.match ?? []).join("\n")}>
          {r.group && <strong>{r.group}</strong>} <code>{(r.match ?? []).join("  ")}</code>
        </span>
      ),
  },
  { id: "in", header: "In", cell: (r) => (r.in ?? []).join(", ") },
  { id: "weight", header: "Weight", cell: (r) => r.weight ?? "", numeric: true },
  { id: "preset", header: "From", cell: (r) => (r.preset ? "preset" : "config") },
  { id: "requests", header: "Requests", cell: (r) => count(r.requests), numeric: true },
];

const aliasColumns: Column<RulesView["aliases"][number]>[] = [
  { id: "name", header: "Requested model", cell: (a) => <code>{a.name}</code> },
  { id: "targets", header: "Goes to", cell: (a) => (a.targets ?? []).join(", ") },
  { id: "from", header: "From", cell: (a) => (a.implied ? "tiers and pools" : "models: in config.yaml") },
];
