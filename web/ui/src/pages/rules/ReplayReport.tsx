import type { ReplayAnswer } from "../../api/schema";
import { clock, plural } from "../../lib/format";
import { Empty } from "../../ui/Panel";
import { DraftReview } from "./DraftReview";
import { Estimates } from "./Estimates";
import { handoversOf, limitsOf, reproducedText, summaryOf } from "./report";
import { Moves, MovesMatrix, TierChanges } from "./ReportTables";

/** ReplayReport shows the result of a replay. */
export function ReplayReport({ of: r, drafted }: { of: ReplayAnswer; drafted: boolean }) {
  if (r.records === 0) {
    return (
      <Empty>
        <strong>No records.</strong> Send requests first, or change the selection. The gateway keeps the last records
        (decisions.keep).
      </Empty>
    );
  }
  const handovers = handoversOf(r, drafted);
  return (
    <div className="stack body padded">
      <p className="verdict">
        <strong>{summaryOf(r, drafted)}</strong>
      </p>
      <p className="muted small">
        {plural(r.records, "record")} from {clock(r.from)} to {clock(r.to)}. {drafted && reproducedText(r)}
      </p>
      {handovers && <p>{handovers}</p>}
      <Limits of={r} />
      <DraftReview of={r} />
      {drafted && <TierChanges of={r} />}
      {r.changed_tier.length > 0 && <MovesMatrix of={r} />}
      <Estimates of={r} drafted={drafted} />
      {r.changed_tier.length > 0 && <Moves title="Requests with another tier" moves={r.changed_tier} />}
      {r.worker_moves.length > 0 && <Moves title="Requests with another worker in the same tier" moves={r.worker_moves} />}
    </div>
  );
}

/** Limits names the records that were left out or decided without a part of their input. */
function Limits({ of: r }: { of: ReplayAnswer }) {
  const all = limitsOf(r);
  if (all.length === 0) return null;
  return (
    <ul className="changes small">
      {all.map((text) => (
        <li key={text}>{text}</li>
      ))}
    </ul>
  );
}
