import { useEffect, useRef, useState } from "react";
import type { DecisionView } from "../../api/schema";
import { clock, count, millis, percent } from "../../lib/format";
import { Badge, type Tone } from "../../ui/parts";
import type { Filter } from "./filter";
import { cachedShare, hopsOf, rowHeight, windowOf } from "./rows";

interface DecisionTableProps {
  rows: DecisionView[];
  onPause: (paused: boolean) => void;
  onFilter: (name: keyof Filter, value: string) => void;
  onOpen: (d: DecisionView) => void;
}

/** DecisionTable draws only the visible rows. It pauses while the pointer is on it or it is scrolled. */
export function DecisionTable({ rows, onPause, onFilter, onOpen }: DecisionTableProps) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const inside = useRef(false);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const resize = new ResizeObserver(() => setView((v) => ({ ...v, height: element.clientHeight })));
    resize.observe(element);
    return () => resize.disconnect();
  }, []);
  const pause = (pointer: boolean) => {
    inside.current = pointer;
    onPause(pointer || (box.current?.scrollTop ?? 0) > 0);
  };
  const { from, to } = windowOf(rows.length, view.top, view.height);
  return (
    <div
      ref={box}
      className="table decisions"
      tabIndex={0}
      role="region"
      aria-label="Decisions"
      onScroll={(e) => {
        setView((v) => ({ ...v, top: box.current === e.target ? box.current.scrollTop : v.top }));
        pause(inside.current);
      }}
      onPointerEnter={() => pause(true)}
      onPointerLeave={() => pause(false)}
    >
      <table aria-label="Decisions" aria-rowcount={rows.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {headers.map(([name, numeric]) => (
              <th key={name} scope="col" className={numeric ? "num" : undefined}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {from > 0 && <Spacer rows={from} />}
          {rows.slice(from, to).map((d, i) => (
            <Row key={d.seq} row={d} index={from + i + 2} onFilter={onFilter} onOpen={onOpen} />
          ))}
          {to < rows.length && <Spacer rows={rows.length - to} />}
        </tbody>
      </table>
    </div>
  );
}

const headers: [name: string, numeric?: true][] = [
  ["Time"],
  ["Status"],
  ["Tenant"],
  ["Model"],
  ["Tier"],
  ["Worker"],
  ["Reason"],
  ["Queue", true],
  ["TTFT", true],
  ["Total", true],
  ["Tokens", true],
  ["Cached", true],
];

function Spacer({ rows }: { rows: number }) {
  return (
    <tr aria-hidden="true">
      <td colSpan={headers.length} style={{ height: rows * rowHeight, padding: 0, border: 0 }} />
    </tr>
  );
}

const tones: Record<string, Tone> = { ok: "ok", refused: "warn", failed: "err", truncated: "err", client_gone: "off" };

interface RowProps {
  row: DecisionView;
  index: number;
  onFilter: DecisionTableProps["onFilter"];
  onOpen: DecisionTableProps["onOpen"];
}

function Row({ row: d, index, onFilter, onOpen }: RowProps) {
  const by = (name: keyof Filter, value: string | undefined, text = value) =>
    value ? (
      <button type="button" className="link" title={`Only ${name} ${value}`} onClick={() => onFilter(name, value)}>
        {text}
      </button>
    ) : (
      <span className="muted">–</span>
    );
  return (
    <tr aria-rowindex={index}>
      <td>
        <button type="button" className="link num" title={`Details of ${d.request_id}`} onClick={() => onOpen(d)}>
          {clock(d.time)}
        </button>
      </td>
      <td>
        <Badge tone={tones[d.outcome] ?? "off"} title={d.cause}>
          {by("status", String(d.status), `${d.status}${d.code ? ` ${d.code}` : ""}`)}
        </Badge>
      </td>
      <td>{by("tenant", d.tenant)}</td>
      <td>
        {d.requested_model && d.requested_model !== d.model && <span className="clip short">{d.requested_model} → </span>}
        <span className="clip short">{by("model", d.model || d.requested_model)}</span>
      </td>
      <td>{by("tier", d.tier)}</td>
      <td>
        <Hops of={d} onFilter={onFilter} />
      </td>
      <td>{by("reason", d.reason)}</td>
      <td className="num">{millis(d.queue_ms)}</td>
      <td className="num">{millis(d.ttft_ms)}</td>
      <td className="num">{millis(d.duration_ms)}</td>
      <td className="num">
        {d.usage ? `${count(d.usage.prompt)} + ${count(d.usage.output)}` : "–"}
      </td>
      <td className="num">{percent(cachedShare(d))}</td>
    </tr>
  );
}

/** Hops shows the chain of attempts, such as w03 ✗503 → w07. */
function Hops({ of: d, onFilter }: { of: DecisionView; onFilter: DecisionTableProps["onFilter"] }) {
  const hops = hopsOf(d);
  if (hops.length === 0) return <span className="muted">–</span>;
  return (
    <>
      {hops.map((h, i) => (
        <span key={i}>
          {i > 0 && " → "}
          <button type="button" className="link" title={`Only worker ${h.worker}`} onClick={() => onFilter("worker", h.worker)}>
            {h.worker}
          </button>
          {h.failed && <span className="bad"> ✗{h.failed}</span>}
        </span>
      ))}
    </>
  );
}
