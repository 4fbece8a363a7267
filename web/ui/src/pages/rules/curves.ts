import type { LabelReport } from "../../api/schema";

/** Size of the picture of the curves and of its plot, in units of its view box. */
export const size = { width: 640, height: 300, left: 52, right: 620, top: 12, bottom: 258 };

/** Names of the curves for readers. */
const names: Record<string, string> = { default: "default score", length: "length alone", random: "random", model: "model" };

/** orderOf returns the name of the order of a curve. */
export function orderOf(curve: LabelReport["curves"][number]): string {
  return names[curve.name] ?? curve.name;
}

/** nameOf returns the name of a curve with its area. */
export function nameOf(curve: LabelReport["curves"][number], inSample: boolean): string {
  const name = orderOf(curve) + (curve.name === "model" && inSample ? ", in-sample" : "");
  return curve.apgr ? `${name}, APGR ${curve.apgr.value.toFixed(3)}` : name;
}

/** boundsOf returns the lowest and the highest quality of the plot, in steps of 5 %. */
export function boundsOf(report: LabelReport): { low: number; high: number } {
  const values = report.curves.flatMap((c) =>
    c.points.flatMap((p) => (c.name === "default" ? [p.quality.low, p.quality.value, p.quality.high] : [p.quality.value])),
  );
  const low = Math.floor(Math.min(...values) * 20 + 1e-9) / 20;
  return { low, high: Math.max(Math.ceil(Math.max(...values) * 20 - 1e-9) / 20, low + 0.05) };
}

/** pointOf returns the coordinates of a share of requests at the large tier and a quality. */
export function pointOf({ low, high }: { low: number; high: number }, share: number, quality: number): { x: number; y: number } {
  return {
    x: Math.round((size.left + share * (size.right - size.left)) * 10) / 10,
    y: Math.round((size.bottom - ((quality - low) / (high - low)) * (size.bottom - size.top)) * 10) / 10,
  };
}

/** gridOf returns the qualities of the grid lines: each 5 %, or each 10 % if the plot is higher than 50 %. */
export function gridOf({ low, high }: { low: number; high: number }): number[] {
  const all: number[] = [];
  for (let n = Math.round(low * 20); n <= Math.round(high * 20); n++) {
    if (high - low <= 0.5 || n % 2 === 0) all.push(n / 20);
  }
  return all;
}
