import type { Excluded, HandoverChoice } from "../../api/schema";
import { costsText, handoverText } from "../../lib/handover";
import { Candidates } from "./Candidates";

interface HandoverViewProps {
  of: HandoverChoice;
  /** The worker of the answer. */
  worker: string;
  /** Workers that could not compute the prompt for it, with the reason. */
  others?: Excluded[];
}

/** HandoverView shows which worker computes a prompt, both costs, and the candidates for that. */
export function HandoverView({ of: h, worker, others = [] }: HandoverViewProps) {
  const text = handoverText(h, worker);
  const costs = costsText(h);
  const candidates = h.prefill?.candidates ?? [];
  const selected = h.decision === "remote" ? h.prefill_worker : undefined;
  return (
    <section className="stack tight" aria-label="Prompt">
      <h3>Prompt</h3>
      <p>
        <strong>{text[0]!.toUpperCase() + text.slice(1)}.</strong>
      </p>
      {costs && <p className="small">{costs}</p>}
      {candidates.length + others.length > 0 && (
        <Candidates
          of={{ candidates, worker: selected, policy: h.prefill?.policy, reason: h.prefill_reason }}
          others={others}
          label="Prefill candidates"
        />
      )}
    </section>
  );
}
