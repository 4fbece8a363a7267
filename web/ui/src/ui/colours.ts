/** Style is the look of a line. */
export interface Style {
  colour: string;
  /** Index of a pattern of dashes; 0 is solid. */
  dash: number;
}

/** Colours with a contrast of at least 3 to both backgrounds. Red and grey have a fixed meaning. */
const palette = ["#2f7ed8", "#2e9e57", "#9a5bd0", "#0f9aa8", "#a07d00", "#d1478d", "#d9650b"];
const grey = "#7d8590";
const dashes = 4;

/** Number of lines that a stacked chart draws, the sum of the others included. */
export const mostStacked = palette.length + 1;

export const othersStyle: Style = { colour: grey, dash: 0 };

const slots = new Map<string, Map<string, number>>();

/**
 * styleOf returns the style of a name in a chart. It is derived from the name, so it stays the same when other lines
 * are added or removed. If another name has this style already, the name gets the next free style, and keeps it.
 */
export function styleOf(chart: string, name: string): Style {
  const taken = slots.get(chart) ?? new Map<string, number>();
  slots.set(chart, taken);
  let slot = taken.get(name);
  if (slot === undefined) {
    slot = freeSlot(hashOf(name) % palette.length, new Set(taken.values()));
    taken.set(name, slot);
  }
  return { colour: palette[slot % palette.length]!, dash: Math.floor(slot / palette.length) };
}

function freeSlot(wanted: number, taken: Set<number>): number {
  const n = palette.length;
  for (let i = 0; i < n * dashes; i++) {
    const slot = Math.floor(i / n) * n + ((wanted + i) % n);
    if (!taken.has(slot)) return slot;
  }
  return wanted;
}

function hashOf(name: string): number {
  let h = 0;
  for (let i = 0; i < name.length; i++) h = (31 * h + name.charCodeAt(i)) >>> 0;
  return h;
}

const resultColours: Record<string, string> = {
  refused: "#d9650b",
  failed: "#c0392b",
  truncated: "#a8672c",
  client_gone: grey,
};
// The last colour of the palette is that of rejections.
const tierColours = palette.slice(0, -1);

/** resultStyle returns the look of the requests of a tier with a result. order: place of the tier, -1 for none. */
export function resultStyle(order: number, result: string): Style {
  const place = Math.max(order, 0);
  const colour = resultColours[result];
  if (colour) return { colour, dash: (order + 1) % dashes };
  return { colour: tierColours[place % tierColours.length]!, dash: Math.floor(place / tierColours.length) % dashes };
}
