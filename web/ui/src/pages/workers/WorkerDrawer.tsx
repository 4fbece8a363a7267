import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { WorkerState } from "../../api/schema";
import { ago, clock } from "../../lib/format";
import { Dialog } from "../../ui/Dialog";
import { Problem } from "../../ui/Panel";
import { Badge, ChangeButton, toneOfWorker } from "../../ui/parts";
import { toast } from "../../ui/Toasts";
import { KeepWeights } from "../config/KeepWeights";
import { refresh, resetWeight, undo } from "./changes";
import { Drain } from "./Drain";
import { Facts } from "./Facts";
import { failureText, isKept, sinceOf } from "./weights";

/** WorkerDrawer shows everything about a worker, and drains it. */
export function WorkerDrawer({ worker: w, onClose }: { worker: WorkerState; onClose: () => void }) {
  const since = sinceOf(w);
  return (
    <Dialog title={w.name} drawer onClose={onClose}>
      <div className="stack">
        <div className="row">
          <Badge tone={isKept(w) ? "warn" : toneOfWorker(w.state)}>{w.state.replace("_", " ")}</Badge>
          {since && <span className="muted">since {clock(since)}</span>}
          <span className="grow" />
          <Link to="/decisions" search={{ worker: w.name }}>
            Decisions for it
          </Link>
          <Link to="/metrics">Metrics</Link>
        </div>
        {w.last_error && w.state !== "up" && <p className="note warn">{w.last_error}</p>}
        {w.breaker.state !== "closed" && w.last_failure && (
          <p className="note warn">
            Last error:{" "}
            <Link to="/decisions" search={{ id: w.last_failure.request_id }}>
              {failureText(w.last_failure)}
            </Link>
          </p>
        )}
        <Drain worker={w} />
        <OverrideOf worker={w} />
        <Facts worker={w} />
      </div>
    </Dialog>
  );
}

function OverrideOf({ worker: w }: { worker: WorkerState }) {
  const o = w.weights.override;
  const reset = useMutation({
    mutationFn: (from: WorkerState) => resetWeight(from),
    onSuccess: (answer, from) =>
      toast(
        `${from.name} has the weight ${from.weights.file} of config.yaml again.`,
        undo(from, answer.worker.weights.version),
      ),
    onError: refresh,
  });
  if (o?.weight === undefined) return null;
  return (
    <fieldset>
      <legend>Live override</legend>
      <div className="stack tight">
        <p>
          Weight {o.weight} instead of {w.weights.file}, set by {o.by} {ago(o.at)}
          {o.until ? `, ends ${ago(o.until)}` : ", until it is reset"}.
        </p>
        <KeepWeights overrides={[o]} />
        <div className="row">
          <ChangeButton onClick={() => reset.mutate(w)} disabled={reset.isPending}>
            Reset to file
          </ChangeButton>
        </div>
        {reset.error && <Problem error={reset.error} />}
      </div>
    </fieldset>
  );
}
