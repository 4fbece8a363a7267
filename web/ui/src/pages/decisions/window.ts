/** Every row of the list has this height in pixels; decisions.css has the same. */
export const rowHeight = 29;

/** Rows above and below the visible part, so that scrolling by a page shows no empty space. */
const spare = 20;

/** Part is the range of rows to render: from, up to but not including to. */
export interface Part {
  from: number;
  to: number;
}

/** visiblePart returns the rows that a box shows which is scrolled by top pixels. */
export function visiblePart(top: number, height: number, rows: number): Part {
  const from = Math.max(0, Math.min(Math.floor(top / rowHeight) - spare, rows - 1));
  // Whole groups, so that most scroll events render nothing new.
  const start = from - (from % 4);
  return { from: start, to: Math.min(rows, start + Math.ceil(height / rowHeight) + 2 * spare + 4) };
}
