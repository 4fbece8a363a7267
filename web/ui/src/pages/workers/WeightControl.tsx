import { useEffect, useRef } from "react";
import { useMayChange } from "../../api/queries";
import type { WorkerState } from "../../api/schema";
import { Confirm } from "../../ui/Dialog";
import { viewerReason } from "../../ui/parts";
import { shownText } from "./edit";
import { useWeightEdit, type Preview } from "./useWeightEdit";
import { configuredWeight, maxWeight, weightOf, type Lifetime } from "./weights";

interface WeightControlProps {
  worker: WorkerState;
  lifetime: Lifetime;
  onPreview: (p: Preview | undefined) => void;
}

/** WeightControl changes the weight of a worker. Live data does not move it while it is being changed. */
export function WeightControl({ worker: w, lifetime, onPreview }: WeightControlProps) {
  const may = useMayChange();
  const { state, edit, commit, commitSoon, confirm, cancel } = useWeightEdit(w, lifetime, onPreview);
  const shown = shownText(state, w);
  const onEscape = (e: React.KeyboardEvent) => e.key === "Escape" && cancel();
  const input = { disabled: !may, title: may ? undefined : viewerReason };
  return (
    <span className={state.phase === "pending" ? "weight pending" : "weight"} aria-busy={state.phase === "pending"}>
      <Slider
        {...input}
        label={`Weight of ${w.name}`}
        value={weightOf(shown) ?? configuredWeight(w)}
        onEdit={edit}
        onCommit={commit}
        onCommitSoon={commitSoon}
        onCancel={cancel}
      />
      <input
        {...input}
        className="num"
        inputMode="numeric"
        size={3}
        value={shown}
        aria-label={`Weight of ${w.name} as a number`}
        aria-invalid={state.phase === "editing" && weightOf(state.text) === undefined}
        onChange={(e) => edit(e.target.value)}
        onKeyDown={(e) => (e.key === "Enter" ? commit() : onEscape(e))}
        onBlur={commit}
      />
      {state.phase === "editing" && weightOf(state.text) === undefined && (
        <small className="bad" role="alert">
          a whole number from 0 to {maxWeight}
        </small>
      )}
      {state.phase === "pending" && <small className="muted">saving</small>}
      {state.phase === "failed" && (
        <span className="bad failure" role="alert">
          Not changed: {state.message}{" "}
          <button type="button" className="quiet" aria-label="Dismiss" onClick={cancel}>
            ×
          </button>
        </span>
      )}
      {state.phase === "asking" && (
        <Confirm
          title={`Set the weight of ${w.name} to ${state.weight}?`}
          action="Set the weight"
          danger
          onConfirm={confirm}
          onClose={cancel}
        >
          {state.warnings.map((text) => (
            <p key={text} className="note warn">
              {text}
            </p>
          ))}
        </Confirm>
      )}
    </span>
  );
}

interface SliderProps {
  label: string;
  value: number;
  disabled: boolean;
  title: string | undefined;
  onEdit: (text: string) => void;
  onCommit: () => void;
  onCommitSoon: () => void;
  onCancel: () => void;
}

/** Slider commits once when the pointer lets it go, and once after a series of key presses. */
function Slider({ label, value, disabled, title, onEdit, onCommit, onCommitSoon, onCancel }: SliderProps) {
  const ref = useRef<HTMLInputElement>(null);
  const dragged = useRef(false);
  const released = useRef({ onCommit, onCommitSoon });
  released.current = { onCommit, onCommitSoon };
  useEffect(() => {
    const slider = ref.current;
    // React's onChange is the browser's input event; change comes when the slider is let go, wherever the pointer is.
    const changed = () => {
      if (dragged.current) released.current.onCommit();
      else released.current.onCommitSoon();
      dragged.current = false;
    };
    slider?.addEventListener("change", changed);
    return () => slider?.removeEventListener("change", changed);
  }, []);
  return (
    <input
      ref={ref}
      type="range"
      min={0}
      max={maxWeight}
      value={value}
      disabled={disabled}
      title={title}
      aria-label={label}
      aria-valuetext={value === 0 ? "0, no new requests" : undefined}
      onChange={(e) => onEdit(e.target.value)}
      onPointerDown={(e) => {
        dragged.current = true;
        e.currentTarget.setPointerCapture(e.pointerId); // the table is busy until the slider is let go
      }}
      onPointerCancel={() => {
        dragged.current = false;
        onCancel();
      }}
      onKeyDown={(e) => {
        dragged.current = false;
        if (e.key === "Escape") onCancel();
      }}
      onBlur={onCommit}
    />
  );
}
