import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { workersQuery } from "../../api/queries";
import type { AttentionItem } from "../../api/schema";
import { linkOf } from "../../lib/link";
import { Badge } from "../../ui/parts";
import { notesOf } from "./notes";

/** Attention lists what needs an operator, then drains and weights of 0, which an operator may have forgotten. */
export function Attention({ items }: { items: AttentionItem[] }) {
  const workers = useQuery(workersQuery);
  const notes = notesOf(workers.data?.workers ?? []);
  return (
    <>
      {items.length === 0 && notes.length === 0 && <p className="body quiet-line">Nothing. All workers, stores and settings are in order.</p>}
      <ul className="attention">
        {items.map((a) => (
          <li key={a.subject + a.message}>
            <Badge tone={a.severity === "error" ? "err" : "warn"}>{a.severity}</Badge>
            {a.subject && a.link ? <Link {...linkOf(a.link)}>{a.subject}</Link> : <strong>{a.subject}</strong>}
            <span>{a.message}</span>
          </li>
        ))}
        {notes.map((n) => (
          <li key={n.worker}>
            <Badge tone="off">note</Badge>
            <Link to="/workers" search={{ worker: n.worker }}>
              worker {n.worker}
            </Link>
            <span>{n.text}</span>
          </li>
        ))}
      </ul>
    </>
  );
}
