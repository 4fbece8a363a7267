import { Link } from "@tanstack/react-router";
import type { ReplayAnswer } from "../../api/schema";
import { hiddenText } from "../config/override";

/** DraftReview lists the changes and warnings of an edited configuration, and the live overrides that win over it. */
export function DraftReview({ of: review }: { of: Pick<ReplayAnswer, "changes" | "warnings" | "overrides"> }) {
  const changes = review.changes ?? [];
  return (
    <>
      {changes.length > 0 && (
        <ul className="changes">
          {changes.map((c) => (
            <li key={c.path + c.op}>
              <code>{c.path}</code> {c.old ?? "unset"} → {c.new ?? "unset"}
            </li>
          ))}
        </ul>
      )}
      {(review.overrides ?? []).map((o) => (
        <p key={o.worker} className="note warn">
          {hiddenText(o)}{" "}
          <Link to="/workers" search={{ worker: o.worker }}>
            Show it
          </Link>
        </p>
      ))}
      {(review.warnings ?? []).map((w) => (
        <p key={`${w.line} ${w.message}`} className="note warn">
          {w.line > 0 && `Line ${w.line}: `}
          {w.path} {w.message}
        </p>
      ))}
    </>
  );
}
