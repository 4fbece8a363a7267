import type { HandoverChoice } from "../../api/schema";
import { Candidates } from "./Candidates";

/** HandoverView shows the candidates for the computation of a prompt. */
export function HandoverView({ of: h }: { of: HandoverChoice }) {
  const worker = h.decision === "remote" ? h.prefill_worker : undefined;
  return h.prefill?.candidates ? <Candidates of={{ ...h.prefill, worker, reason: h.prefill_reason }} label="Prefill candidates" /> : null;
}
