import { useEffect, useId, useRef, type ReactNode } from "react";
import { createPortal } from "react-dom";

interface DialogProps {
  title: ReactNode;
  /** Called when the person closes the dialog. */
  onClose: () => void;
  /** false: neither Escape nor the button closes the dialog. */
  closable?: boolean;
  /** A drawer stands at the right edge and shows the details of a row. */
  drawer?: boolean;
  children: ReactNode;
}

/** Dialog is a modal dialog. The browser keeps the focus inside and returns it afterwards. */
export function Dialog({ title, onClose, closable = true, drawer, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    const top = document.querySelector("header.top")?.getBoundingClientRect().bottom ?? 0;
    if (drawer) dialog?.style.setProperty("--top", `${Math.max(top, 0)}px`);
    dialog?.showModal();
    // The browser focuses the first control, which closes the dialog. A form begins with its first field.
    if (!drawer) dialog?.querySelector<HTMLElement>("form :is(input, select, textarea)")?.focus();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, [drawer]);
  // A dialog may be opened from a form, and a form must not contain another one.
  return createPortal(
    <dialog
      ref={ref}
      className={drawer ? "drawer" : undefined}
      aria-labelledby={id}
      onCancel={(e) => {
        e.preventDefault();
        if (closable) onClose();
      }}
      onKeyDown={(e) => {
        // A second Escape would close the dialog even if its cancel event is prevented.
        if (e.key === "Escape") {
          e.preventDefault();
          e.stopPropagation();
          if (closable) onClose();
        }
      }}
    >
      <header>
        <h2 id={id}>{title}</h2>
        {closable && (
          <button type="button" className="quiet" aria-label="Close" onClick={onClose}>
            ×
          </button>
        )}
      </header>
      {children}
    </dialog>,
    document.body,
  );
}

interface ConfirmProps {
  title: string;
  /** Label of the button that does it. */
  action: string;
  danger?: boolean;
  /** The person must type this text before the button works. */
  typed?: string;
  pending?: boolean;
  onConfirm: () => void;
  onClose: () => void;
  children: ReactNode;
}

/** Confirm asks before a change that cannot be undone. */
export function Confirm({ title, action, danger, typed, pending, onConfirm, onClose, children }: ConfirmProps) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          e.stopPropagation(); // the dialog may belong to another form
          if (typed && input.current?.value !== typed) {
            input.current?.setCustomValidity(`Type ${typed} to confirm.`);
            input.current?.reportValidity();
            return;
          }
          onConfirm();
        }}
      >
        {children}
        {typed && (
          <label className="field">
            <span>
              Type <code>{typed}</code> to confirm
            </span>
            <input ref={input} autoComplete="off" spellCheck={false} onInput={(e) => e.currentTarget.setCustomValidity("")} />
          </label>
        )}
        <footer>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className={danger ? "danger" : "primary"} disabled={pending}>
            {action}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
