import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { clock, plural } from "../../lib/format";
import { Panel } from "../../ui/Panel";
import { fileQuery } from "./queries";

const route = getRouteApi("/shell/config");

/** FileText shows the file on disk with its line numbers, without secrets. */
export function FileText() {
  const file = useQuery({ ...fileQuery, staleTime: 0 });
  const marked = Number(route.useSearch().q) || 0;
  return (
    <Panel title="File on disk" query={file} rows={12}>
      {(f) => (
        <>
          <p className="body muted">
            {f.path}, modified {clock(f.modified_at)}.{" "}
            {f.secrets_hidden > 0 && `${plural(f.secrets_hidden, "possible secret")} hidden. `}
            This page never changes the file.
          </p>
          <Lines text={f.text} marked={[marked]} />
        </>
      )}
    </Panel>
  );
}

/** Lines shows a text with line numbers and marked lines; the first marked line is scrolled to. */
export function Lines({ text, marked }: { text: string; marked: number[] }) {
  const first = useRef<HTMLLIElement>(null);
  const line = marked[0];
  useEffect(() => {
    void first.current?.scrollIntoView({ block: "center" });
  }, [line]);
  return (
    <ol className="numbered mono" tabIndex={0} aria-label="Text with line numbers">
      {text.split("\n").map((t, i) => (
        <li
          key={i}
          ref={i + 1 === line ? first : undefined}
          className={marked.includes(i + 1) ? "marked" : undefined}
          aria-current={marked.includes(i + 1) ? "location" : undefined}
        >
          {t || " "}
        </li>
      ))}
    </ol>
  );
}
