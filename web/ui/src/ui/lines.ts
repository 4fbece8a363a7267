import { othersStyle, type Style } from "./colours";

/** Line is one series of a chart. null is a gap. */
export interface Line {
  name: string;
  /** Absent: it follows from the name. */
  style?: Style;
  values: (number | null)[];
}

/** stackedValues returns each line plus the lines before it. A gap counts as zero unless all lines have it. */
export function stackedValues(lines: Line[]): (number | null)[][] {
  const all = sumOf(lines);
  const sums = all.map(() => 0);
  return lines.map((l) => l.values.map((v, i) => (all[i] === null ? null : (sums[i] = (sums[i] ?? 0) + (v ?? 0)))));
}

/**
 * withOthers returns at most a number of lines: the largest in their order, and the sum of the others as the last.
 * It is for charts of which the sum has a meaning.
 */
export function withOthers(lines: Line[], most: number): Line[] {
  if (lines.length <= most) return lines;
  const total = (l: Line) => l.values.reduce<number>((sum, v) => sum + (v ?? 0), 0);
  const bySize = [...lines].sort((a, b) => total(b) - total(a));
  const largest = new Set(bySize.slice(0, most - 1));
  const others = lines.filter((l) => !largest.has(l));
  return [...lines.filter((l) => largest.has(l)), { name: `others (${others.length})`, style: othersStyle, values: sumOf(others) }];
}

/** sumOf returns the sum of lines; null where all have a gap. */
function sumOf(lines: Line[]): (number | null)[] {
  return (lines[0]?.values ?? []).map((_, i) =>
    lines.reduce<number | null>((sum, l) => {
      const v = l.values[i] ?? null;
      return v === null ? sum : (sum ?? 0) + v;
    }, null),
  );
}
