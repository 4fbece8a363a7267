import type { ProblemView } from "../../api/schema";
import { Badge } from "../../ui/parts";

/** Problems lists errors and warnings of a configuration; a click marks the line of one. */
export function Problems({ problems, onLine }: { problems: ProblemView[]; onLine?: (line: number) => void }) {
  return (
    <ul className="problems">
      {problems.map((p) => (
        <li key={`${p.line}:${p.column}:${p.message}`}>
          <Badge tone={p.severity === "error" ? "err" : "warn"}>{p.severity}</Badge>
          {p.line > 0 &&
            (onLine ? (
              <button type="button" className="link" onClick={() => onLine(p.line)}>
                line {p.line}
              </button>
            ) : (
              <span>line {p.line}</span>
            ))}
          <span>
            {p.path && <code>{p.path}</code>} {p.message} {p.hint && <span className="muted">({p.hint})</span>}
          </span>
        </li>
      ))}
    </ul>
  );
}
