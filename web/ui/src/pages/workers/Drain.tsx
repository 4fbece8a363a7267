import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { base } from "../../api/client";
import type { WorkerState } from "../../api/schema";
import { adminCurl } from "../../lib/curl";
import { ago, clock, millis, plural, seconds } from "../../lib/format";
import { Confirm } from "../../ui/Dialog";
import { Problem } from "../../ui/Panel";
import { ChangeButton, Curl, Field } from "../../ui/parts";
import { toast } from "../../ui/Toasts";
import { drain, reasonOf, refresh, removalQuery, undrain } from "./changes";

/** Drain shows the progress of a worker's drain, and starts or ends it. */
export function Drain({ worker: w }: { worker: WorkerState }) {
  return (
    <fieldset>
      <legend>Drain</legend>
      <div className="stack tight">
        {w.drain ? <Progress worker={w} /> : <p className="muted">A drained worker takes no new requests and finishes the current ones.</p>}
        <div className="row">
          <DrainButton worker={w} />
        </div>
      </div>
    </fieldset>
  );
}

/** DrainButton opens the dialog that drains a worker, or ends its drain. */
export function DrainButton({ worker: w }: { worker: WorkerState }) {
  const [asking, setAsking] = useState(false);
  const end = useMutation({
    mutationFn: () => undrain(w.name),
    onSuccess: () => {
      refresh();
      toast(`${w.name} takes new requests again.`);
    },
    onError: (e) => toast(`The drain of ${w.name} was not ended. ${reasonOf(e)}`),
  });
  return (
    <>
      {w.drain ? (
        <ChangeButton aria-label={`Undrain ${w.name}`} onClick={() => end.mutate()} disabled={end.isPending}>
          Undrain
        </ChangeButton>
      ) : (
        <ChangeButton aria-label={`Drain… ${w.name}`} onClick={() => setAsking(true)}>
          Drain…
        </ChangeButton>
      )}
      {asking && <DrainDialog worker={w} onClose={() => setAsking(false)} />}
    </>
  );
}

/** Progress is the real progress of a drain: the requests that were in flight at its start, and those left. */
function Progress({ worker: w }: { worker: WorkerState }) {
  const d = w.drain!;
  const begun = d.inflight_at_start ?? d.inflight;
  if (d.inflight === 0) {
    return (
      <p role="status">
        <strong>Drained.</strong> No request is left; draining began {ago(d.since)}.
      </p>
    );
  }
  return (
    <div role="status">
      <progress max={Math.max(begun, d.inflight)} value={Math.max(begun - d.inflight, 0)} aria-label="Finished requests" />
      <p>
        {d.inflight} of {Math.max(begun, d.inflight)} requests left; draining began {ago(d.since)}
        {w.latency.count > 0 && `; 95 % of its requests take up to ${millis(w.latency.p95_ms)}`}.
        {d.overdue && <strong> The deadline has passed; the requests continue.</strong>}
      </p>
    </div>
  );
}

const timeouts = [60, 300, 900, 3600];

function DrainDialog({ worker: w, onClose }: { worker: WorkerState; onClose: () => void }) {
  const [timeout, setTimeout] = useState(300);
  const removal = useQuery(removalQuery(w.name));
  const warnings = removal.data?.warnings ?? [];
  const alone = warnings.length > 0;
  const start = useMutation({
    mutationFn: () => drain(w.name, timeout),
    onSuccess: (answer) => {
      refresh();
      onClose();
      toast(`The drain of ${w.name} began; its deadline is ${clock(answer.deadline)}.`);
      // The dialog has shown the warnings that were known.
      for (const text of answer.warnings ?? []) if (!warnings.includes(text)) toast(text);
    },
  });
  return (
    <Confirm
      title={`Drain ${w.name}`}
      action="Drain"
      danger={alone}
      pending={start.isPending || removal.isPending}
      onConfirm={() => start.mutate()}
      onClose={onClose}
    >
      <p>
        {alone ? "Requests in flight finish here" : "New requests go to the other workers; requests in flight finish here"}.{" "}
        {plural(w.inflight, "request")} in flight now.
      </p>
      {warnings.map((text) => (
        <p key={text} className="note warn">
          {text}
        </p>
      ))}
      {w.weights.override?.until && (
        <p className="note warn">A drain has no expiry: the weight {w.weights.override.weight}, which has one, is removed.</p>
      )}
      <Field label="Deadline" hint="After it, the worker is marked as overdue, and its requests continue.">
        <select value={timeout} onChange={(e) => setTimeout(Number(e.target.value))}>
          {timeouts.map((s) => (
            <option key={s} value={s}>
              {seconds(s)}
            </option>
          ))}
        </select>
      </Field>
      {start.error && <Problem error={start.error} />}
      <Curl text={adminCurl(base, "POST", `admin/workers/${encodeURIComponent(w.name)}/drain`, { timeout_s: timeout })} />
    </Confirm>
  );
}
