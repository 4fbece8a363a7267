import { useCallback, useEffect, useLayoutEffect, useRef, useState, type MouseEvent, type RefObject } from "react";
import type { DecisionView } from "../../api/schema";
import { DecisionRow } from "./DecisionRow";
import type { FilterName, SetFilter } from "./filter";
import type { Cause } from "./pause";
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
  { id: "model", header: "Requested → tier" },
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
  const [view, measure] = useView(box);
  useEffect(() => {
    if (top > 0) box.current!.scrollTop = 0;
  }, [top]);
  useEffect(() => () => (["scroll", "pointer"] as const).forEach((c) => onPause(c, false)), [onPause]);
  const part = visiblePart(view.top, view.height, rows.length);
  return (
    <div
      ref={box}
      className="decisions"
      tabIndex={0}
      role="region"
      aria-label="Decisions"
      onScroll={(e) => {
        measure();
        onPause("scroll", e.currentTarget.scrollTop > 0);
      }}
    >
      <table aria-label="Decisions" aria-rowcount={rows.length + 1}>
        <Header />
        <tbody
          onClick={(e) => filterByValue(e, onFilter)}
          // A finger leaves no pointer on the list; its tap must find the row where it was.
          onPointerEnter={(e) => e.pointerType !== "touch" && onPause("pointer", true)}
          onPointerLeave={() => onPause("pointer", false)}
          onFocus={() => onPause("pointer", true)}
          onBlur={(e) => {
            if (!e.currentTarget.contains(e.relatedTarget)) onPause("pointer", false);
          }}
        >
          <Space rows={part.from} />
          {rows.slice(part.from, part.to).map((d, i) => (
            <DecisionRow key={d.seq} row={d} index={part.from + i + 2} onOpen={onOpen} />
          ))}
          <Space rows={rows.length - part.to} />
        </tbody>
      </table>
    </div>
  );
}

/** View is the visible part of a box in pixels. */
interface View {
  top: number;
  height: number;
}

/** useView returns the visible part of a box, and a function that measures it again after scrolling. */
function useView(box: RefObject<HTMLDivElement | null>): [View, () => void] {
  const [view, setView] = useState<View>({ top: 0, height: 900 });
  const measure = useCallback(() => setView({ top: box.current!.scrollTop, height: box.current!.clientHeight }), [box]);
  useLayoutEffect(() => {
    const resize = new ResizeObserver(measure);
    resize.observe(box.current!);
    return () => resize.disconnect();
  }, [box, measure]);
  return [view, measure];
}

/** filterByValue filters by the value that was clicked, if it was one. */
function filterByValue(e: MouseEvent, onFilter: SetFilter): void {
  const button = (e.target as HTMLElement).closest<HTMLElement>("button[data-name]");
  if (button) onFilter({ [button.dataset.name as FilterName]: button.dataset.value });
}

function Header() {
  return (
    <>
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
    </>
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
