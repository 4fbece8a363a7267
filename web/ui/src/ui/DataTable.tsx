import { useLayoutEffect, useRef, useState, type MouseEvent, type ReactNode } from "react";
import { sorted, sortingOf, type Sorting } from "./sort";

/** Column is one column of a table. */
export interface Column<T> {
  id: string;
  header: ReactNode;
  /** Name of the column for screen readers if the header is no text. */
  label?: string;
  /** What the column shows, as the header's tooltip. */
  title?: string;
  /** Value to sort by; a column without one cannot be sorted. */
  value?: (row: T) => string | number | undefined;
  cell: (row: T) => ReactNode;
  /** Numbers stand at the right. */
  numeric?: boolean;
}

interface DataTableProps<T> {
  /** Name of the table for screen readers. */
  label: string;
  columns: Column<T>[];
  rows: T[];
  rowKey: (row: T) => string;
  /** Column id, with - before it for descending order. */
  sort?: string;
  onSort?: (sort: string) => void;
  /** Shows the details of a row. */
  onOpen?: (row: T) => void;
  rowClass?: (row: T) => string | undefined;
}

/** stableOrder returns keys in the order of before; keys that are new stand at the end. */
function stableOrder(before: string[], now: string[]): string[] {
  const present = new Set(now);
  const kept = before.filter((k) => present.has(k));
  const old = new Set(kept);
  return [...kept, ...now.filter((k) => !old.has(k))];
}

/** useOrder returns the keys of the rows in their order. While the table is busy, rows stay where they are. */
function useOrder<T extends object>({ columns, rows, rowKey, sort }: DataTableProps<T>) {
  const [busy, setBusy] = useState(false);
  const shown = useRef<string[]>([]);
  const sorting = sortingOf(sort);
  const value = columns.find((c) => c.id === sorting?.id)?.value;
  const now = (sorting && value ? sorted(rows, value, sorting.desc) : rows).map(rowKey);
  const order = busy ? stableOrder(shown.current, now) : now;
  shown.current = order;
  return { order, sorting, busy, setBusy };
}

/** isPlain reports whether a click is on a row itself, and not on a control in it or the end of a selection. */
export function isPlain(e: MouseEvent): boolean {
  const within = (e.target as HTMLElement).closest("a, button, input, select, label, summary, dialog");
  return !within && getSelection()?.isCollapsed !== false;
}

/** useFixedColumns returns a ref for a table. While the table is busy, its columns keep their widths. */
function useFixedColumns(busy: boolean) {
  const ref = useRef<HTMLTableElement>(null);
  useLayoutEffect(() => {
    const table = ref.current;
    if (!busy || !table) return;
    const parts = [table, ...table.querySelectorAll("th")];
    const widths = parts.map((e) => e.getBoundingClientRect().width); // all of them before the first change
    parts.forEach((e, i) => (e.style.width = `${widths[i]}px`));
    table.style.tableLayout = "fixed";
    return () => {
      parts.forEach((e) => (e.style.width = ""));
      table.style.tableLayout = "";
    };
  }, [busy]);
  return ref;
}

/**
 * DataTable is a table that sorts by its headers. While the pointer or the focus is in its body, new
 * values change neither the order of the rows nor the widths of the columns, so that a click never hits
 * another row and a held slider stays under the pointer.
 */
export function DataTable<T extends object>(props: DataTableProps<T>) {
  const { label, columns, rows, rowKey, sort, onSort, onOpen, rowClass } = props;
  const { order, sorting, busy, setBusy } = useOrder(props);
  const table = useFixedColumns(busy);
  const byKey = new Map(rows.map((r) => [rowKey(r), r]));
  const sortBy = (id: string) => {
    setBusy(false); // a click on a header is a wish for another order
    onSort?.(sort === id ? `-${id}` : id);
  };
  return (
    <div className="table" tabIndex={0} role="region" aria-label={label}>
      <table ref={table} aria-label={label}>
        <thead>
          <tr>
            {columns.map((c) => (
              <Header
                key={c.id}
                column={c}
                direction={sorting?.id === c.id ? sorting : undefined}
                onSort={c.value && onSort && (() => sortBy(c.id))}
              />
            ))}
          </tr>
        </thead>
        <tbody
          onPointerEnter={(e) => e.pointerType !== "touch" && setBusy(true)}
          onPointerLeave={() => setBusy(false)}
          onFocus={() => setBusy(true)}
          onBlur={(e) => {
            if (!e.currentTarget.contains(e.relatedTarget)) setBusy(false);
          }}
        >
          {order.map((key) => {
            const row = byKey.get(key);
            if (!row) return null;
            return (
              <tr key={key} className={rowClass?.(row)} data-key={key} onClick={onOpen && ((e) => isPlain(e) && onOpen(row))}>
                {columns.map((c, i) => (
                  <td key={c.id} className={c.numeric ? "num" : undefined}>
                    {i === 0 && onOpen ? (
                      <button type="button" className="link" onClick={() => onOpen(row)}>
                        {c.cell(row)}
                      </button>
                    ) : (
                      c.cell(row)
                    )}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

interface HeaderProps<T> {
  column: Column<T>;
  direction: Sorting | undefined;
  onSort: (() => void) | undefined;
}

function Header<T>({ column: c, direction, onSort }: HeaderProps<T>) {
  return (
    <th
      scope="col"
      className={c.numeric ? "num" : undefined}
      aria-label={c.label}
      title={c.title}
      aria-sort={direction ? (direction.desc ? "descending" : "ascending") : undefined}
    >
      {onSort ? (
        <button type="button" className="sort" onClick={onSort}>
          {c.header}
          <i aria-hidden="true">{direction ? (direction.desc ? "▾" : "▴") : ""}</i>
        </button>
      ) : (
        c.header
      )}
    </th>
  );
}
