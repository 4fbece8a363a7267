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
import { overrideText, yamlOf } from "./yaml";

/** Overrides lists the live weights and drains that differ from the file. */
export function Overrides() {
  const config = useQuery(configQuery);
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
          <ToFile overrides={c.overrides} />
        </>
      )}
    </Panel>
  );
}

/** ToFile shows what becomes permanent in the file: weights, and no drains. */
function ToFile({ overrides }: { overrides: Override[] }) {
  const yaml = yamlOf(overrides);
  return (
    <div className="body stack">
      {yaml && (
        <>
          <p>To keep these weights, write them into the file:</p>
          <Code text={yaml} label="Weights as YAML" />
        </>
      )}
      {overrides.some((o) => o.drain) && (
        <p>
          A drain has no place in the file. It ends by <em>Undrain</em>, here or under <Link to="/workers">Workers</Link>.
        </p>
      )}
    </div>
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
  { id: "value", header: "Override", cell: overrideText },
  { id: "by", header: "By", cell: (o) => o.by },
  { id: "at", header: "Since", cell: (o) => clock(o.at) },
  { id: "until", header: "Ends", cell: (o) => (o.until ? ago(o.until) : isDrain(o) ? "by Undrain" : "when it is reset") },
  { id: "remove", header: "", label: "Remove", cell: (o) => <Remove override={o} /> },
];

/** isDrain reports whether an override is a drain alone. */
function isDrain(o: Override): boolean {
  return o.drain === true && o.weight === undefined;
}

function Remove({ override: o }: { override: Override }) {
  const remove = useMutation({
    mutationFn: () => result(api.DELETE("/admin/overrides/{worker}", { params: { path: { worker: o.worker } } })),
    onSuccess: () => {
      toast(isDrain(o) ? `${o.worker} takes new requests again.` : `${o.worker} has the weight of the file again.`);
      void queries.invalidateQueries({ queryKey: ["config"] });
    },
    onError: (e) => toast(`The override of ${o.worker} was not removed: ${e.message}`),
  });
  return (
    <ChangeButton
      onClick={() => remove.mutate()}
      disabled={remove.isPending}
      title={adminCurl(base, "DELETE", `admin/overrides/${encodeURIComponent(o.worker)}`)}
    >
      {isDrain(o) ? "Undrain" : "Reset to file"}
    </ChangeButton>
  );
}
