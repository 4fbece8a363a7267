import { useEffect, useId, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

/** Line is one series of a chart. null is a gap. */
export interface Line {
  name: string;
  values: (number | null)[];
}

/** Mark is an event that a chart shows as a vertical line. */
export interface Mark {
  at: number; // Unix seconds
  text: string;
}

interface ChartProps {
  title: string;
  /** Unix seconds of the points. */
  times: number[];
  lines: Line[];
  /** Writes a value with its unit. */
  format: (value: number | null) => string;
  marks?: Mark[];
  /** Charts with the same key share their cursor. */
  sync?: string;
  /** Lines are summed and filled. */
  stacked?: boolean;
  /** Lines that are always 0 are left out, so that a chart without lines is 0. */
  zero?: boolean;
}

const height = 170;

/** Colours with a contrast of at least 3 to both backgrounds; lines also differ by their dashes. */
const colours = ["#2f7ed8", "#d9650b", "#2e9e57", "#9a5bd0", "#c0392b", "#0f9aa8", "#a07d00", "#d1478d"];
const dashes = [[], [6, 3], [2, 3], [10, 3, 2, 3]];

/** stackedValues returns each line plus the lines before it; a gap counts as zero unless all are gaps. */
export function stackedValues(lines: Line[]): (number | null)[][] {
  const sums: (number | null)[] = [];
  return lines.map((l) =>
    l.values.map((v, i) => {
      const below = sums[i] ?? null;
      sums[i] = v === null ? below : (below ?? 0) + v;
      return sums[i] ?? null;
    }),
  );
}

function dataOf(times: number[], lines: Line[], stacked: boolean | undefined): uPlot.AlignedData {
  return [times, ...(stacked ? stackedValues(lines) : lines.map((l) => l.values))];
}

function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A canvas does not understand light-dark(), so an element resolves the colour.
function colour(element: HTMLElement, name: string): string {
  element.style.color = `var(${name})`;
  const resolved = getComputedStyle(element).color;
  element.style.color = "";
  return resolved || token(name);
}

function drawMarks(u: uPlot, marks: Mark[], stroke: string): void {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.strokeStyle = stroke;
  ctx.setLineDash([3, 3]);
  for (const m of marks) {
    const x = Math.round(u.valToPos(m.at, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** optionsOf returns the options of a chart with the colours of the theme. */
function optionsOf(box: HTMLElement, p: ChartProps, now: () => ChartProps): uPlot.Options {
  const [text, grid, mark] = [colour(box, "--mut"), colour(box, "--line"), colour(box, "--warn")];
  const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
  return {
    width: Math.max(box.clientWidth, 200),
    height,
    cursor: { sync: { key: p.sync ?? "" }, points: { size: 5 } },
    legend: { live: true },
    scales: { y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.08 : 1] } },
    axes: [
      { ...axis, values: "{HH}:{mm}" },
      { ...axis, size: 64, values: (_u, ticks) => ticks.map((v) => p.format(v)) },
    ],
    series: [
      { value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" },
      ...p.lines.map((l, i): uPlot.Series => {
        const stroke = colours[i % colours.length]!;
        return {
          label: l.name,
          stroke,
          width: 1.5,
          dash: dashes[Math.floor(i / colours.length) % dashes.length],
          fill: p.stacked ? `${stroke}1f` : undefined,
          spanGaps: false,
          points: { show: false },
          value: (_u, _v, series, at) => (at === null ? "" : p.format(now().lines[series - 1]?.values[at] ?? null)),
        };
      }),
    ],
    hooks: { draw: [(u) => drawMarks(u, now().marks ?? [], mark)] },
  };
}

/** Chart draws lines over time. The same values are available as a table. */
export function Chart(props: ChartProps) {
  const { title, times, lines, marks = [], stacked, zero } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const latest = useRef(props);
  latest.current = props;
  const [table, setTable] = useState(false);
  const [theme, setTheme] = useState(0);
  const id = useId();
  const names = lines.map((l) => l.name).join("\n");

  useEffect(() => {
    const changed = () => setTheme((n) => n + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("themechange", changed);
    system.addEventListener("change", changed);
    return () => {
      removeEventListener("themechange", changed);
      system.removeEventListener("change", changed);
    };
  }, []);

  // A chart is made again for other lines or another theme; new values only replace the old ones.
  useEffect(() => {
    const element = box.current;
    if (!element || table) return;
    const p = latest.current;
    const made = new uPlot(optionsOf(element, p, () => latest.current), dataOf(p.times, p.lines, p.stacked), element);
    plot.current = made;
    const resize = new ResizeObserver(() => made.setSize({ width: Math.max(element.clientWidth, 200), height }));
    resize.observe(element);
    return () => {
      resize.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [names, theme, table]);

  useEffect(() => {
    plot.current?.setData(dataOf(times, lines, stacked));
  }, [times, lines, stacked]);

  return (
    <section className="panel chart" aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        <div className="actions">
          <button type="button" className="quiet small" hidden={lines.length === 0} aria-pressed={table} onClick={() => setTable(!table)}>
            {table ? "Show as chart" : "Show as table"}
          </button>
        </div>
      </header>
      {lines.length === 0 && <p className="empty">{zero ? "0 in the whole period." : "No values in this period."}</p>}
      {lines.length === 0 ? null : table ? <Values {...props} /> : <div ref={box} className="plot" role="img" aria-label={`${title}, as a chart`} />}
      {marks.length > 0 && !table && lines.length > 0 && (
        <p className="marks muted small">Dashed lines: {[...new Set(marks.map((m) => m.text))].slice(-4).join("; ")}</p>
      )}
    </section>
  );
}

/** A table of more rows is not read; the newest ones count. */
const tableRows = 60;

function Values({ title, times, lines, format }: ChartProps) {
  const from = Math.max(0, times.length - tableRows);
  return (
    <div className="table tall" tabIndex={0} role="region" aria-label={title}>
      <table>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {lines.map((l) => (
              <th key={l.name} scope="col" className="num">
                {l.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {times
            .slice(from)
            .map((t, i) => (
              <tr key={t}>
                <td className="num">{new Date(t * 1000).toLocaleTimeString("en-GB")}</td>
                {lines.map((l) => (
                  <td key={l.name} className="num">
                    {format(l.values[from + i] ?? null)}
                  </td>
                ))}
              </tr>
            ))
            .reverse()}
        </tbody>
      </table>
    </div>
  );
}
