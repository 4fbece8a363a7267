import { memo, useEffect, useLayoutEffect, useRef, useState, type MouseEvent } from "react";
import type { DecisionView } from "../../api/schema";
import { millis, UNKNOWN } from "../../lib/format";
import { codedText, reasonText } from "../../lib/reasons";
import { Badge, type Tone } from "../../ui/parts";
import type { SetFilter } from "./DecisionsPage";
import type { FilterName } from "./filter";
import type { Cause } from "./pause";
import { endOf, prefixOf, reasonOf, timeOf, tokensOf, triesOf } from "./rows";
import { rowHeight, visiblePart } from "./window";

interface DecisionTableProps {
  rows: DecisionView[];
  /** A change of this number scrolls to the newest row. */
  top: number;
  onOpen: (id: string) => void;
  onFilter: SetFilter;
  onPause: (cause: Cause, on: boolean) => void;
}

const columns: { id: string; header: string; numeric?: boolean; title?: string }[] = [
  { id: "time", header: "Ended", title: "Time when the request ended" },
  { id: "tenant", header: "Tenant" },
  { id: "model", header: "Requested → served" },
  { id: "worker", header: "Workers" },
  { id: "reason", header: "Reason" },
  { id: "status", header: "Status" },
  { id: "queue", header: "Queue", numeric: true },
  { id: "ttft", header: "TTFT", numeric: true, title: "Time to the first token" },
  { id: "total", header: "Total", numeric: true },
  { id: "tokens", header: "Tokens", numeric: true, title: "Prompt + output" },
  { id: "prefix", header: "Prefix", numeric: true, title: "Cached part of the prompt; ≈ is the gateway's expectation" },
];

/** DecisionTable renders only the visible rows, so that thousands scroll smoothly. */
export function DecisionTable({ rows, top, onOpen, onFilter, onPause }: DecisionTableProps) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 900 });
  useLayoutEffect(() => {
    const element = box.current!;
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight });
    const resize = new ResizeObserver(measure);
    resize.observe(element);
    return () => resize.disconnect();
  }, []);
  useEffect(() => {
    if (top > 0) box.current!.scrollTop = 0;
  }, [top]);
  useEffect(() => () => (["scroll", "pointer"] as const).forEach((c) => onPause(c, false)), [onPause]);
  const part = visiblePart(view.top, view.height, rows.length);
  const click = (e: MouseEvent) => {
    const button = (e.target as HTMLElement).closest<HTMLElement>("button[data-name]");
    if (button) onFilter({ [button.dataset.name as FilterName]: button.dataset.value });
  };
  return (
    <div
      ref={box}
      className="decisions"
      tabIndex={0}
      role="region"
      aria-label="Decisions"
      onScroll={(e) => {
        const { scrollTop, clientHeight } = e.currentTarget;
        setView({ top: scrollTop, height: clientHeight });
        onPause("scroll", scrollTop > 0);
      }}
    >
      <table aria-label="Decisions" aria-rowcount={rows.length + 1}>
        <colgroup>
          {columns.map((c) => (
            <col key={c.id} className={`col-${c.id}`} />
          ))}
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((c) => (
              <th key={c.id} scope="col" className={c.numeric ? "num" : undefined} title={c.title}>
                {c.header}
              </th>
            ))}
          </tr>
        </thead>
        <tbody
          onClick={click}
          onPointerEnter={() => onPause("pointer", true)}
          onPointerLeave={() => onPause("pointer", false)}
          onFocus={() => onPause("pointer", true)}
          onBlur={(e) => {
            if (!e.currentTarget.contains(e.relatedTarget)) onPause("pointer", false);
          }}
        >
          <Space rows={part.from} />
          {rows.slice(part.from, part.to).map((d, i) => (
            <Row key={d.seq} row={d} index={part.from + i + 2} onOpen={onOpen} />
          ))}
          <Space rows={rows.length - part.to} />
        </tbody>
      </table>
    </div>
  );
}

// Stands for the rows above or below the rendered ones.
function Space({ rows }: { rows: number }) {
  if (rows <= 0) return null;
  return (
    <tr className="space" aria-hidden="true">
      <td colSpan={columns.length} style={{ height: rows * rowHeight }} />
    </tr>
  );
}

const tones: Record<string, Tone> = { ok: "ok", refused: "warn", failed: "err", truncated: "err", client_gone: "off" };

interface RowProps {
  row: DecisionView;
  index: number;
  onOpen: (id: string) => void;
}

const Row = memo(function Row({ row: d, index, onOpen }: RowProps) {
  const reason = reasonOf(d);
  return (
    <tr aria-rowindex={index}>
      <td>
        <button type="button" className="link num" title={`Began ${d.time}, request ${d.request_id}`} onClick={() => onOpen(d.request_id)}>
          {timeOf(endOf(d))}
        </button>
      </td>
      <td>
        <Value name="tenant" value={d.tenant} />
      </td>
      <td>
        <span className="pair">
          <Value name="model" value={d.requested_model} />
          {d.tier && (
            <>
              <span>→</span>
              <Value name="tier" value={d.tier} />
            </>
          )}
        </span>
      </td>
      <td title={chainText(d)}>
        <Chain row={d} />
      </td>
      <td>
        <Value name={reason.filter} value={reason.value} title={reason.text} />
      </td>
      <td>
        <Badge tone={tones[d.outcome] ?? "err"}>
          <Value name="status" value={String(d.status)} />
          {d.outcome !== "ok" && <Value name="outcome" value={d.outcome} text={reasonText("outcome", d.outcome)} second />}
        </Badge>
      </td>
      <td className="num">{d.queue_ms > 0 ? millis(d.queue_ms) : UNKNOWN}</td>
      <td className="num">{d.ttft_ms ? millis(d.ttft_ms) : UNKNOWN}</td>
      <td className="num">{millis(d.duration_ms)}</td>
      <td className="num">{tokensOf(d)}</td>
      <td className="num">{prefixOf(d)}</td>
    </tr>
  );
});

function chainText(d: DecisionView): string {
  return triesOf(d)
    .map((t) => `${t.worker} ${t.good ? "✓" : `✗ ${codedText("attempt", t.text)}`}`)
    .join(" → ");
}

function Chain({ row: d }: { row: DecisionView }) {
  const tries = triesOf(d);
  if (tries.length === 0) return <span className="muted">none</span>;
  return tries.map((t, i) => (
    <span key={i}>
      {i > 0 && " → "}
      <Value name="worker" value={t.worker} />{" "}
      {t.good ? (
        <span className="good" role="img" aria-label="answered">
          ✓
        </span>
      ) : (
        <span className="bad">✗ {t.text}</span>
      )}
    </span>
  ));
}

interface ValueProps {
  name: FilterName;
  value: string | undefined;
  /** What is shown; the value if absent. */
  text?: string;
  title?: string;
  second?: boolean;
}

// A click on a value filters by it. The keyboard has the same conditions in the form above, so a row is one
// stop of the Tab key and not eight.
function Value({ name, value, text = value, title = text, second }: ValueProps) {
  if (!value) return <span className="muted">{UNKNOWN}</span>;
  return (
    <button type="button" tabIndex={-1} className={second ? "value second" : "value"} data-name={name} data-value={value} title={title}>
      {text}
    </button>
  );
}
