import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { base } from "../../api/client";
import type { ReplayFilter } from "../../api/schema";
import { adminCurl } from "../../lib/curl";
import { Empty, Problem } from "../../ui/Panel";
import { Curl } from "../../ui/parts";
import { DraftEditor } from "./DraftEditor";
import { problemsOf } from "./problems";
import { replayDecisions } from "./queries";
import { ReplayReport } from "./ReplayReport";
import { ReplaySelection } from "./ReplaySelection";

interface ReplayProps {
  draft: string | undefined;
  onDraft: (d: string | undefined) => void;
}

/** Replay repeats the last decisions, under a draft or under the configuration in force. */
export function Replay({ draft, onDraft }: ReplayProps) {
  const [last, setLast] = useState("1000");
  const [filter, setFilter] = useState<ReplayFilter>({});
  const run = useMutation({ mutationFn: replayDecisions });
  const chosen = Object.fromEntries(Object.entries(filter).filter(([, v]) => v !== ""));
  const order = { last: Number(last) || 1000, ...(Object.keys(chosen).length > 0 && { filter: chosen }), ...(draft !== undefined && { draft }) };
  return (
    <div className="playground">
      <section className="panel" aria-label="Replay">
        <form
          className="body stack padded"
          onSubmit={(e) => {
            e.preventDefault();
            run.mutate(order);
          }}
        >
          <p>
            Repeats the recorded decisions of the last requests. Without an edited configuration, the result shows whether the
            configuration in force reproduces them.
          </p>
          <ReplaySelection last={last} onLast={setLast} filter={filter} onFilter={setFilter} />
          <DraftEditor draft={draft} onChange={onDraft} error={run.error} />
          <button type="submit" className="primary" disabled={run.isPending}>
            {run.isPending ? "Replaying…" : "Replay"}
          </button>
          {run.error && !problemsOf(run.error) && <Problem error={run.error} />}
          {run.variables && <Curl text={adminCurl(base, "POST", "admin/route/replay", run.variables)} />}
        </form>
      </section>
      <section className="panel" aria-label="Result" aria-live="polite">
        {run.data ? (
          <ReplayReport of={run.data} drafted={run.variables?.draft !== undefined} />
        ) : (
          <Empty>
            <strong>No result yet.</strong> Press Replay. It takes a second, and sends nothing.
          </Empty>
        )}
      </section>
    </div>
  );
}
