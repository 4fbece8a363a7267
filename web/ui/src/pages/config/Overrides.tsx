import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, base, result } from "../../api/client";
import { queries } from "../../api/queries";
import type { Override } from "../../api/schema";
import { adminCurl } from "../../lib/curl";
import { ago, clock } from "../../lib/format";
import { DataTable, type Column } from "../../ui/DataTable";
import { Empty, Panel } from "../../ui/Panel";
import { ChangeButton, Code } from "../../ui/parts";
import { toast } from "../../ui/Toasts";
import { configQuery } from "./queries";
import { yamlOf } from "./yaml";

/** Overrides lists the live weights and drains that differ from the file. */
export function Overrides() {
  const config = useQuery(configQuery);
  const all = config.data?.overrides ?? [];
  return (
    <Panel
      title="Live overrides"
      query={config}
      empty={(c) =>
        c.overrides.length === 0 && (
          <Empty>
            <strong>No overrides.</strong> Weights and drains that are set under <Link to="/workers">Workers</Link> appear
            here. The file stays as it is.
          </Empty>
        )
      }
    >
      {(c) => (
        <>
          <DataTable label="Live overrides" columns={columns} rows={c.overrides} rowKey={(o) => o.worker} />
          <div className="body stack">
            <p>To keep these weights, write them into the file:</p>
            <Code text={yamlOf(all)} label="Weights as YAML" />
          </div>
        </>
      )}
    </Panel>
  );
}

const columns: Column<Override>[] = [
  {
    id: "worker",
    header: "Worker",
    cell: (o) => (
      <Link to="/workers" search={{ worker: o.worker }}>
        {o.worker}
      </Link>
    ),
  },
  { id: "value", header: "Override", cell: (o) => (o.drain ? "drain" : `weight ${o.weight}`) },
  { id: "by", header: "By", cell: (o) => o.by },
  { id: "at", header: "Since", cell: (o) => clock(o.at) },
  { id: "until", header: "Ends", cell: (o) => (o.until ? ago(o.until) : "when it is reset") },
  { id: "reset", header: "", label: "Reset", cell: (o) => <Reset override={o} /> },
];

function Reset({ override: o }: { override: Override }) {
  const reset = useMutation({
    mutationFn: () => result(api.DELETE("/admin/overrides/{worker}", { params: { path: { worker: o.worker } } })),
    onSuccess: () => {
      toast(`${o.worker} has the weight of the file again.`);
      void queries.invalidateQueries({ queryKey: ["config"] });
    },
    onError: (e) => toast(`The override of ${o.worker} was not removed: ${e.message}`),
  });
  return (
    <ChangeButton
      onClick={() => reset.mutate()}
      disabled={reset.isPending}
      title={adminCurl(base, "DELETE", `admin/overrides/${encodeURIComponent(o.worker)}`)}
    >
      Reset to file
    </ChangeButton>
  );
}
