import type { ReplayAnswer } from "../../api/schema";

/** DraftReview lists the changes and warnings of an edited configuration. */
export function DraftReview({ of: review }: { of: Pick<ReplayAnswer, "changes" | "warnings"> }) {
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
      {(review.warnings ?? []).map((w) => (
        <p key={`${w.line} ${w.message}`} className="note warn">
          {w.line > 0 && `Line ${w.line}: `}
          {w.path} {w.message}
        </p>
      ))}
    </>
  );
}
