import { useQuery } from "@tanstack/react-query";
import { draftQuery } from "./queries";

interface DraftEditorProps {
  /** undefined: the configuration in force only. */
  draft: string | undefined;
  onChange: (draft: string | undefined) => void;
}

/** DraftEditor edits a copy of the configuration, which is evaluated and never applied. */
export function DraftEditor({ draft, onChange }: DraftEditorProps) {
  const file = useQuery(draftQuery);
  const initial = file.data ?? "";
  return (
    <div className="stack tight">
      <label className="check">
        <input
          type="checkbox"
          checked={draft !== undefined}
          disabled={file.isPending}
          onChange={(e) => onChange(e.target.checked ? initial : undefined)}
        />{" "}
        Compare with an edited configuration
      </label>
      {draft !== undefined && (
        <>
          <textarea
            rows={14}
            spellCheck={false}
            aria-label="Edited configuration"
            placeholder="A complete configuration"
            value={draft}
            onChange={(e) => onChange(e.target.value)}
          />
          <div className="row small">
            <button type="button" onClick={() => onChange(initial)} disabled={draft === initial}>
              Start again
            </button>
            <span className="muted">
              {draft === initial ? "Change weights, thresholds or keywords. Nothing is applied." : "Edited; not applied."}
            </span>
          </div>
        </>
      )}
    </div>
  );
}
