import { count } from "../../lib/format";
import type { Cause } from "./pause";

interface PauseStateProps {
  causes: ReadonlySet<Cause>;
  fresh: number;
  onPause: () => void;
  onResume: () => void;
}

const texts: [Cause, string][] = [
  ["button", "Paused"],
  ["record", "Paused: a record is open"],
  ["scroll", "Paused: scrolled down"],
  ["pointer", "Paused: the pointer is on the list"],
];

/** PauseState shows why the list does not change, and pauses or resumes it. */
export function PauseState({ causes, fresh, onPause, onResume }: PauseStateProps) {
  const text = texts.find(([cause]) => causes.has(cause))?.[1];
  return (
    <span className="pause-state">
      <span className="muted small">{text}</span>
      {fresh > 0 && (
        <button type="button" className="fresh" onClick={onResume}>
          {count(fresh)} new
        </button>
      )}
      {causes.has("button") || causes.has("scroll") ? (
        <button type="button" onClick={onResume}>
          Resume
        </button>
      ) : (
        <button type="button" onClick={onPause}>
          Pause
        </button>
      )}
    </span>
  );
}
