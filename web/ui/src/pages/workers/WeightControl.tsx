import { useMutation } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { useMayChange } from "../../api/queries";
import type { WorkerState } from "../../api/schema";
import { Confirm } from "../../ui/Dialog";
import { toast } from "../../ui/Toasts";
import { previewWeight, refresh, restore, setWeight } from "./changes";
import { maxWeight, restoreOf, Throttle, weightOf } from "./weights";

/** A person does not see more than five previews per second. */
const previewEvery = 200;

/** Several presses of an arrow key are one change. */
const keyPause = 300;

/** Shares are the expected shares of a pool's workers while a weight is being changed. */
export type Shares = Record<string, number>;

interface WeightControlProps {
  worker: WorkerState;
  ttl_s: number | undefined;
  onPreview: (shares: Shares | undefined) => void;
}

/** WeightControl changes the weight of a worker. Live data does not move it while it is being changed. */
export function WeightControl({ worker: w, ttl_s, onPreview }: WeightControlProps) {
  const may = useMayChange();
  const [draft, setDraft] = useState<string>();
  const [warnings, setWarnings] = useState<string[]>();
  const shown = draft ?? String(w.weights.override?.drain ? (w.weights.override.weight ?? w.weights.file) : w.weight);
  const latest = useRef<string>(undefined); // the draft as the newest event left it
  const version = useRef(0); // of the override after this control's last change
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const newestCommit = useRef<() => void>(undefined);
  const schedule = () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => newestCommit.current?.(), keyPause);
  };
  const done = () => {
    latest.current = undefined;
    setDraft(undefined);
    setWarnings(undefined);
    onPreview(undefined);
  };
  const change = useMutation({
    mutationFn: async ({ weight, sure }: { weight: number; sure?: boolean }) => {
      if (!sure) {
        const preview = await previewWeight(w.name, weight);
        if (preview.warnings?.length) {
          setWarnings(preview.warnings);
          return;
        }
      }
      const before = restoreOf(w, Date.now());
      const answer = await setWeight(w, Math.max(version.current, w.weights.version), weight, ttl_s);
      version.current = answer.worker.weights.version;
      refresh();
      // The person may have gone on meanwhile; then the newer weight is sent next.
      if (latest.current === undefined || latest.current === String(weight)) done();
      else schedule();
      toast(`The weight of ${w.name} is ${weight}.`, () => void restore(w.name, before).catch(failedUndo));
    },
    onError: () => {
      version.current = 0;
      done();
    },
  });
  const preview = useThrottledPreview(w.name, onPreview);
  const edit = (text: string) => {
    setDraft(text);
    latest.current = text;
    if (!change.isPending) change.reset();
    const weight = weightOf(text);
    if (weight !== undefined) preview.show(weight);
  };
  const commit = () => {
    clearTimeout(timer.current);
    preview.cancel();
    const draft = latest.current;
    const weight = weightOf(draft ?? "");
    if (draft === undefined || change.isPending) return;
    if (weight === undefined || String(weight) === String(w.weight)) done();
    else change.mutate({ weight });
  };
  useEffect(() => {
    newestCommit.current = commit;
  });
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <span className={change.isPending ? "weight pending" : "weight"}>
      <input
        type="range"
        min={0}
        max={maxWeight}
        value={weightOf(shown) ?? 0}
        disabled={!may}
        aria-label={`Weight of ${w.name}`}
        onChange={(e) => edit(e.target.value)}
        onPointerUp={commit}
        onKeyUp={(e) => e.key !== "Tab" && schedule()}
        onBlur={commit}
      />
      <input
        className="num"
        inputMode="numeric"
        size={3}
        value={shown}
        disabled={!may}
        title={may ? undefined : "Your key has the role viewer: it can change nothing."}
        aria-label={`Weight of ${w.name} as a number`}
        aria-invalid={draft !== undefined && weightOf(draft) === undefined}
        onChange={(e) => edit(e.target.value)}
        onKeyDown={(e) => {
          if (e.key === "Enter") commit();
          if (e.key === "Escape") done();
        }}
        onBlur={commit}
      />
      {change.error && (
        <span className="bad" role="alert">
          {change.error.message}
        </span>
      )}
      {warnings && (
        <Confirm
          title={`Set the weight of ${w.name} to ${draft}?`}
          action="Set the weight"
          danger
          pending={change.isPending}
          onConfirm={() => change.mutate({ weight: weightOf(draft ?? "") ?? 0, sure: true })}
          onClose={done}
        >
          {warnings.map((text) => (
            <p key={text}>{text}</p>
          ))}
        </Confirm>
      )}
    </span>
  );
}

function failedUndo(e: Error): void {
  toast(`The weight was not restored: ${e.message}`);
}

interface Preview {
  show: (weight: number) => void;
  cancel: () => void;
}

/** useThrottledPreview shows the shares for the newest weight; answers of older weights are ignored. */
function useThrottledPreview(name: string, onShares: (s: Shares) => void): Preview {
  const latest = useRef(onShares);
  latest.current = onShares;
  const preview = useMemo(() => {
    let newest = 0;
    const throttle = new Throttle<number>(previewEvery, (weight) => {
      const number = ++newest;
      previewWeight(name, weight).then(
        (answer) => number === newest && latest.current(answer.expected),
        () => undefined, // the change itself shows the error
      );
    });
    return {
      show: (weight: number) => throttle.call(weight),
      cancel: () => {
        newest++;
        throttle.cancel();
      },
    };
  }, [name]);
  useEffect(() => preview.cancel, [preview]);
  return preview;
}
