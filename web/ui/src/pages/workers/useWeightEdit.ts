import { useEffect, useMemo, useRef, useState } from "react";
import type { WorkerState } from "../../api/schema";
import { toast } from "../../ui/Toasts";
import { previewWeight, reasonOf, refresh, setWeight, undo } from "./changes";
import { idle, mustSave, step, type Edit, type EditEvent } from "./edit";
import { Throttle, weightOf } from "./weights";

/** A person does not see more than five previews per second. */
const previewEvery = 200;
/** Key presses with shorter pauses are one change. */
const keyPause = 400;

/** Preview is the expected share of each worker of a pool while a weight is being changed. */
export interface Preview {
  worker: string;
  weight: number;
  expected: Record<string, number>;
}

interface WeightEdit {
  state: Edit;
  edit: (text: string) => void;
  /** Saves the edit now. */
  commit: () => void;
  /** Saves the edit if no other one follows soon. */
  commitSoon: () => void;
  confirm: () => void;
  cancel: () => void;
}

/** useWeightEdit returns the edit of a worker's weight. ttl: text of how long the changed weight stays. */
export function useWeightEdit(
  worker: WorkerState,
  ttl: { ttl_s: number | undefined; label: string },
  onPreview: (p: Preview | undefined) => void,
): WeightEdit {
  const [state, setState] = useState<Edit>(idle);
  const latest = useRef({ worker, ttl, onPreview });
  latest.current = { worker, ttl, onPreview };
  const editor = useMemo(() => {
    let now = idle;
    let soon: ReturnType<typeof setTimeout> | undefined;
    const preview = newPreviews(worker.name, (p) => latest.current.onPreview(p));
    const send = (e: EditEvent) => {
      const before = now;
      now = step(before, e);
      if (now === before) return;
      if (now.phase === "idle" || now.phase === "failed") preview.stop();
      if (mustSave(before, now)) void save(now);
      setState(now);
    };
    const save = async (s: Edit) => {
      if (s.phase !== "pending") return;
      const { name } = s.base;
      const { ttl_s, label } = latest.current.ttl;
      try {
        const warnings = s.sure ? undefined : await preview.exact(s.weight);
        if (warnings?.length) {
          send({ kind: "warned", warnings });
          return;
        }
        const answer = await setWeight(s.base, s.weight, ttl_s);
        const meaning = s.weight === 0 ? ": no new requests" : "";
        const stays = answer.worker.weights.override?.weight !== undefined;
        const until = stays ? (ttl_s === undefined ? "" : ` The override ends ${label}.`) : " It is that of config.yaml.";
        toast(`The weight of ${name} is ${s.weight}${meaning}.${until}`, undo(s.base, answer.worker.weights.version));
        send({ kind: "saved", worker: answer.worker });
      } catch (e) {
        refresh();
        send({ kind: "failed", message: reasonOf(e) });
      }
    };
    const commit = () => {
      clearTimeout(soon);
      send({ kind: "commit" });
    };
    return {
      edit: (text: string) => {
        clearTimeout(soon);
        send({ kind: "edit", text, worker: latest.current.worker });
        const weight = weightOf(text);
        if (weight !== undefined) preview.show(weight);
        else preview.stop();
      },
      commit,
      commitSoon: () => {
        clearTimeout(soon);
        soon = setTimeout(commit, keyPause);
      },
      confirm: () => send({ kind: "confirm" }),
      cancel: () => {
        clearTimeout(soon);
        send({ kind: "cancel" });
      },
      // An edit that a person made is saved even if the page is left at once.
      end: () => {
        commit();
        preview.stop();
      },
    };
  }, [worker.name]);
  useEffect(() => editor.end, [editor]);
  return { state, ...editor };
}

/** newPreviews shows the shares for the newest weight; the answers about older weights are ignored. */
function newPreviews(worker: string, show: (p: Preview | undefined) => void) {
  let newest = 0;
  const ask = async (weight: number) => {
    const number = ++newest;
    const answer = await previewWeight(worker, weight);
    if (number === newest) show({ worker, weight, expected: answer.expected });
    return answer.warnings ?? undefined;
  };
  const throttle = new Throttle<number>(previewEvery, (weight) => {
    ask(weight).catch(() => undefined); // the change itself shows the error
  });
  return {
    show: (weight: number) => throttle.call(weight),
    /** Asks at once, and returns the warnings. */
    exact: (weight: number) => {
      throttle.cancel();
      return ask(weight);
    },
    stop: () => {
      newest++;
      throttle.cancel();
      show(undefined);
    },
  };
}
