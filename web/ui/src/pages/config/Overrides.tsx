import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, base, result } from "../../api/client";
import { queries, workersQuery } from "../../api/queries";
import type { Override } from "../../api/schema";
import { adminCurl } from "../../lib/curl";
import { ago, clock } from "../../lib/format";
import { DataTable, type Column } from "../../ui/DataTable";
import { Empty, Panel } from "../../ui/Panel";
import { ChangeButton } from "../../ui/parts";
import { toast } from "../../ui/Toasts";
import { reasonOf, refresh, resetWeight, undrain } from "../workers/changes";
import { KeepWeights } from "./KeepWeights";
import { configQuery } from "./queries";
import { overridden, overrideText } from "./override";

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

/** ToFile says how weights become permanent in the file, which drains cannot. */
function ToFile({ overrides }: { overrides: Override[] }) {
  return (
    <div className="body padded stack">
      <KeepWeights overrides={overrides} />
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

/** Remove ends the weight and the drain of an override, each by its own button. */
function Remove({ override: o }: { override: Override }) {
  const workers = useQuery(workersQuery).data?.workers;
  const gone = workers !== undefined && !workers.some((w) => w.name === o.worker);
  const worker = `admin/workers/${encodeURIComponent(o.worker)}`;
  if (gone) {
    return (
      <End
        label="Remove"
        of={o}
        end={() => result(api.DELETE("/admin/overrides/{worker}", { params: { path: { worker: o.worker } } }))}
        done={`The override of ${o.worker} was removed.`}
        curl={adminCurl(base, "DELETE", `admin/overrides/${encodeURIComponent(o.worker)}`)}
      />
    );
  }
  return (
    <span className="row">
      {o.weight !== undefined && (
        <End
          label="Reset to file"
          of={o}
          end={async () => {
            const fresh = await queries.fetchQuery({ ...workersQuery, staleTime: 0 });
            return resetWeight(overridden(o, fresh.workers));
          }}
          done={`${o.worker} has the weight of the file again${o.drain ? "; its drain continues" : ""}.`}
          curl={adminCurl(base, "PATCH", worker, { weight: null })}
        />
      )}
      {o.drain && (
        <End
          label="Undrain"
          of={o}
          end={() => undrain(o.worker)}
          done={`${o.worker} takes new requests again.`}
          curl={adminCurl(base, "POST", `${worker}/undrain`)}
        />
      )}
    </span>
  );
}

interface EndProps {
  label: string;
  of: Override;
  end: () => Promise<unknown>;
  done: string;
  curl: string;
}

/** End is a button that ends a part of an override. */
function End({ label, of, end, done, curl }: EndProps) {
  const call = useMutation({
    mutationFn: end,
    onSuccess: () => toast(done),
    onError: (e) => toast(`The override of ${of.worker} stays. ${reasonOf(e)}`),
    onSettled: () => {
      refresh();
      void queries.invalidateQueries({ queryKey: ["config"] });
    },
  });
  return (
    <ChangeButton onClick={() => call.mutate()} disabled={call.isPending} title={curl}>
      {label}
    </ChangeButton>
  );
}
