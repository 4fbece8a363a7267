import { useEffect, useRef, useSyncExternalStore } from "react";

interface Toast {
  id: number;
  text: string;
  undo?: () => void;
}

/** An undo must be reachable by keyboard and by a slow reader. */
const shownFor = 10_000;

let toasts: Toast[] = [];
let next = 1;
const listeners = new Set<() => void>();

function set(now: Toast[]): void {
  toasts = now;
  for (const f of listeners) f();
}

/** toast shows a short message for ten seconds, with an undo button if undo is given. */
export function toast(text: string, undo?: () => void): void {
  set([...toasts.slice(-2), { id: next++, text, undo }]);
}

function dismiss(id: number): void {
  set(toasts.filter((t) => t.id !== id));
}

/** Toasts shows the current messages. Screen readers announce them. */
export function Toasts() {
  const all = useSyncExternalStore(
    (f) => {
      listeners.add(f);
      return () => listeners.delete(f);
    },
    () => toasts,
  );
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // A message must stand above a dialog that was opened before it.
    box.current?.hidePopover();
    if (all.length > 0) box.current?.showPopover();
  }, [all]);
  return (
    <div ref={box} popover="manual" className="toasts" role="status" aria-live="polite">
      {all.map((t) => (
        <ToastView key={t.id} toast={t} />
      ))}
    </div>
  );
}

function ToastView({ toast: t }: { toast: Toast }) {
  useEffect(() => {
    const timer = setTimeout(() => dismiss(t.id), shownFor);
    return () => clearTimeout(timer);
  }, [t.id]);
  return (
    <div className="toast">
      <span>{t.text}</span>
      {t.undo && (
        <button
          type="button"
          onClick={() => {
            t.undo?.();
            dismiss(t.id);
          }}
        >
          Undo
        </button>
      )}
      <button type="button" className="quiet" aria-label="Dismiss" onClick={() => dismiss(t.id)}>
        ×
      </button>
    </div>
  );
}
