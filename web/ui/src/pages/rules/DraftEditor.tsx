import { useQuery } from "@tanstack/react-query";
import { useRef } from "react";
import { lineRange, problemsOf, type DraftProblem } from "./problems";
import { draftQuery } from "./queries";

interface DraftEditorProps {
  /** undefined: the configuration in force only. */
  draft: string | undefined;
  onChange: (draft: string | undefined) => void;
  /** Error of the last request; those of the draft are shown here. */
  error?: unknown;
}

/** DraftEditor edits a copy of the configuration, which is evaluated and never applied. */
export function DraftEditor({ draft, onChange, error }: DraftEditorProps) {
  const file = useQuery(draftQuery);
  const area = useRef<HTMLTextAreaElement>(null);
  const initial = file.data ?? "";
  const problems = draft === undefined ? undefined : problemsOf(error);
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
            ref={area}
            className="draft"
            rows={16}
            spellCheck={false}
            aria-label="Edited configuration"
            aria-invalid={problems !== undefined}
            placeholder="A complete configuration"
            value={draft}
            onChange={(e) => onChange(e.target.value)}
          />
          {problems && <Problems all={problems} onShow={(line) => area.current && showLine(area.current, line)} />}
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

function Problems({ all, onShow }: { all: DraftProblem[]; onShow: (line: number) => void }) {
  return (
    <div className="problem" role="alert">
      <strong>The edited configuration has errors.</strong>
      <ul>
        {all.map((p) => (
          <li key={`${p.line} ${p.text}`}>
            {p.line > 0 && (
              <>
                <button type="button" className="link" onClick={() => onShow(p.line)}>
                  Line {p.line}
                </button>
                {": "}
              </>
            )}
            {p.text}
          </li>
        ))}
      </ul>
    </div>
  );
}

/** showLine selects a line and scrolls to it. Long lines do not wrap, so each has the same height. */
function showLine(area: HTMLTextAreaElement, line: number): void {
  area.focus();
  area.setSelectionRange(...lineRange(area.value, line));
  const height = parseFloat(getComputedStyle(area).lineHeight);
  area.scrollTop = Math.max(0, (line - 4) * height);
}
