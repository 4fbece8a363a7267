// Small parts that several pages use.
import { useState, type ButtonHTMLAttributes, type ReactNode } from "react";
import { useMayChange } from "../api/queries";
import { percent } from "../lib/format";
import { toast } from "./Toasts";

export type Tone = "ok" | "warn" | "err" | "off" | "info";

/** Badge is a state as a shape and a word, so that colour is not needed to read it. */
export function Badge({ tone, children, title }: { tone: Tone; children: ReactNode; title?: string }) {
  return (
    <span className={`badge ${tone}`} title={title}>
      <i aria-hidden="true" />
      {children}
    </span>
  );
}

/** toneOfWorker returns the tone of a worker's state. */
export function toneOfWorker(state: string): Tone {
  switch (state) {
    case "up":
      return "ok";
    case "draining":
    case "drained":
    case "asleep":
    case "paused":
      return "off";
    case "backoff":
    case "half_open":
      return "warn";
    default:
      return "err";
  }
}

/** Bar shows a value against its limit. Without a limit it shows the value only. */
export function Bar({ value, max, text, label }: { value: number; max: number; text: string; label: string }) {
  if (max <= 0) return <span className="num">{text}</span>;
  const share = Math.min(value / max, 1);
  return (
    <span className={share >= 1 ? "bar full" : share >= 0.8 ? "bar high" : "bar"}>
      <meter min={0} max={1} value={share} aria-label={label} title={percent(value / max)} />
      <span className="num">{text}</span>
    </span>
  );
}

/** CopyButton copies a text to the clipboard. */
export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  return (
    <button
      type="button"
      className="copy"
      onClick={() => {
        void copyText(text).then((ok) => {
          if (!ok) {
            toast("The browser did not permit copying. Select the text and copy it.");
            return;
          }
          setDone(true);
          setTimeout(() => setDone(false), 2000);
        });
      }}
    >
      {done ? "Copied" : label}
    </button>
  );
}

/** copyText copies a text and reports whether that worked. Plain HTTP has no clipboard API. */
async function copyText(text: string): Promise<boolean> {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  }
  const area = document.createElement("textarea");
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const ok = document.execCommand("copy");
  area.remove();
  return ok;
}

/** Code shows a command or file that can be copied. */
export function Code({ text, label, copyLabel }: { text: string; label?: string; copyLabel?: string }) {
  return (
    <div className="code">
      <pre tabIndex={0} aria-label={label}>
        {text}
      </pre>
      <CopyButton text={text} label={copyLabel} />
    </div>
  );
}

/** Curl shows the request that a button sends. */
export function Curl({ text }: { text: string }) {
  return (
    <details className="curl">
      <summary>Same with curl</summary>
      <Code text={text} label="curl command" />
    </details>
  );
}

/** viewerReason is why a control does not work for a viewer. */
export const viewerReason = "Read only: your key has the role viewer.";

/** ChangeButton is a button for a change. A viewer sees it disabled, with the reason. */
export function ChangeButton(props: ButtonHTMLAttributes<HTMLButtonElement>) {
  const may = useMayChange();
  if (may) return <button type="button" {...props} />;
  return <button type="button" {...props} disabled title={viewerReason} />;
}

interface FieldProps {
  label: ReactNode;
  hint?: ReactNode;
  error?: string;
  children: ReactNode;
}

/** Field is a labelled input with the server's message about it. */
export function Field({ label, hint, error, children }: FieldProps) {
  return (
    <label className={error ? "field invalid" : "field"}>
      <span>{label}</span>
      {children}
      {error ? (
        <em role="alert">{error}</em>
      ) : (
        hint && <small>{hint}</small>
      )}
    </label>
  );
}

/** Sparkline is a line without axes; the text beside it has the value. */
export function Sparkline({ values, label }: { values: (number | null)[]; label: string }) {
  const known = values.filter((v): v is number => v !== null);
  const max = Math.max(...known, 0);
  if (known.length < 2) return <span className="sparkline" />;
  const step = 100 / (values.length - 1);
  let path = "";
  let gap = true;
  values.forEach((v, i) => {
    if (v === null) {
      gap = true;
      return;
    }
    path += `${gap ? "M" : "L"}${(i * step).toFixed(1)} ${(23 - (max > 0 ? (v / max) * 22 : 0)).toFixed(1)}`;
    gap = false;
  });
  return (
    <svg className="sparkline" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={label}>
      <path d={path} />
    </svg>
  );
}
