import type { Attempt, HandoverChoice } from "../../api/schema";
import { Candidates } from "./Candidates";

/** HandoverView shows the candidates for the computation of a prompt. */
export function HandoverView({ of: h }: { of: HandoverChoice }) {
  const worker = h.decision === "remote" ? h.prefill_worker : undefined;
  return h.prefill?.candidates ? <Candidates of={{ ...h.prefill, worker, reason: h.prefill_reason }} label="Prefill candidates" /> : null;
}

/** RetriedPrefills shows the candidates after a prefill worker has failed. */
export function RetriedPrefills({ of: { handover } }: { of: Attempt }) {
  return handover?.prefills?.map(
    (p, i) => p.choice && <Candidates key={i} of={{ ...p.choice, worker: p.worker, reason: p.reason }} label="Prefill candidates after a failure" />,
  );
}
