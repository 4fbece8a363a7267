import { useEffect, useId, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock, count } from "../lib/format";
import "./chart.css";
import { mostStacked, styleOf } from "./colours";
import { stackedValues, withOthers, type Line } from "./lines";

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
  /** Lines are summed and filled. If there are more of them than colours, the smallest become one line. */
  stacked?: boolean;
  /** Lines that are always 0 are left out, so that a chart without lines is 0. */
  zero?: boolean;
}

const height = 170;

const dashes = [
  { canvas: [], legend: "solid" },
  { canvas: [6, 3], legend: "dashed" },
  { canvas: [2, 3], legend: "dotted" },
  { canvas: [10, 3, 2, 3], legend: "double" },
];

/** Steps of an axis of counts: between 2 and 3 there is nothing to label. */
const wholeSteps = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8].flatMap((n) => [n, 2 * n, 5 * n]);

const lookOf = (chart: string, l: Line) => l.style ?? styleOf(chart, l.name);

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
  // Without a cursor, the legend shows the newest values.
  const looks = p.lines.map((l) => lookOf(p.title, l));
  const shown = (at: number | null) => at ?? now().times.length - 1;
  return {
    width: Math.max(box.clientWidth, 200),
    height,
    cursor: { sync: { key: p.sync ?? "" }, points: { size: 5 } },
    legend: { live: true, markers: { dash: (_u, series) => dashes[looks[series - 1]?.dash ?? 0]!.legend } },
    scales: { y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.08 : 1] } },
    axes: [
      { ...axis, values: "{HH}:{mm}" },
      {
        ...axis,
        size: 72,
        values: (_u, ticks) => ticks.map((v) => p.format(v)),
        ...(p.format === count && { incrs: wholeSteps }),
      },
    ],
    series: [
      { value: (_u, _v, _series, at) => timeText(now().times[shown(at)]) },
      ...p.lines.map(
        (l, i): uPlot.Series => ({
          label: l.name,
          stroke: looks[i]!.colour,
          width: 1.5,
          dash: dashes[looks[i]!.dash]!.canvas,
          fill: p.stacked ? `${looks[i]!.colour}59` : undefined,
          spanGaps: false,
          points: { show: false },
          value: (_u, _v, series, at) => p.format(now().lines[series - 1]?.values[shown(at)] ?? null),
        }),
      ),
    ],
    // An area ends at the line below it, so that its colour is that of the legend.
    bands: p.stacked ? p.lines.slice(1).map((_, i) => ({ series: [i + 2, i + 1] })) : [],
    hooks: { draw: [(u) => drawMarks(u, now().marks ?? [], mark)] },
  };
}

function timeText(t: number | undefined): string {
  return t === undefined ? "" : clock(t * 1000);
}

/** useTheme returns a number that changes with the theme. */
function useTheme(): number {
  const [theme, setTheme] = useState(0);
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
  return theme;
}

/** Chart draws lines over time. The values of all lines are available as a table. */
export function Chart(props: ChartProps) {
  const { title, lines, stacked, zero } = props;
  const drawn = useMemo(() => (stacked ? withOthers(lines, mostStacked) : lines), [lines, stacked]);
  const [table, setTable] = useState(false);
  const id = useId();
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
      {lines.length > 0 && (table ? <Values {...props} /> : <Plot {...props} lines={drawn} />)}
    </section>
  );
}

function Plot(props: ChartProps) {
  const { title, times, lines, stacked } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const latest = useRef(props);
  latest.current = props;
  const theme = useTheme();
  const names = lines.map((l) => [l.name, ...Object.values(lookOf(title, l))].join()).join("\n");

  // A chart is made again for other lines or another theme; new values only replace the old ones.
  useEffect(() => {
    const element = box.current;
    if (!element) return;
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
  }, [names, theme]);

  useEffect(() => {
    plot.current?.setData(dataOf(times, lines, stacked));
  }, [times, lines, stacked]);

  return <div ref={box} className="plot" role="img" aria-label={`${title}, as a chart`} />;
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
