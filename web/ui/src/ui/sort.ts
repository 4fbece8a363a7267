/** Sorting is the order of a table: by a column, descending if desc is true. */
export interface Sorting {
  id: string;
  desc: boolean;
}

/** sortingOf parses a sort parameter such as -load. */
export function sortingOf(sort: string | undefined): Sorting | undefined {
  if (!sort) return undefined;
  return sort.startsWith("-") ? { id: sort.slice(1), desc: true } : { id: sort, desc: false };
}

const collator = new Intl.Collator("en", { numeric: true });

type Value = string | number | undefined;

function compare(a: Value, b: Value): number {
  return typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b));
}

/**
 * sorted returns the rows in the order of their values. Rows without a value come last; rows with equal values keep
 * their order.
 */
export function sorted<T>(rows: T[], value: (row: T) => Value, desc: boolean): T[] {
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === undefined || y === undefined) return Number(x === undefined) - Number(y === undefined);
    return desc ? compare(y, x) : compare(x, y);
  });
}
