import type { UsedNow } from "../../api/schema";
import { count, money } from "../../lib/format";
import { limitFields } from "./settings";

type Use = UsedNow["limits"][number];

function amount(limit: string, n: number): string {
  return limit.endsWith("_money") ? money(n) : count(Math.ceil(n));
}

/** usageText returns the usage of a limit as text: that of a rate, such as 480 rpm, against the burst that it permits. */
export function usageText(u: Use): string {
  const used = `${amount(u.limit, u.used)}/${amount(u.limit, u.room)}`;
  const name = u.limit.replace("_", " ");
  return u.rate === undefined ? `${used} ${name}` : `${amount(u.limit, u.rate)} ${name}, burst ${used}`;
}

/** A row of the table has room for this many limits. */
const shown = 2;
/** A limit that is this full may reject the next requests, so that it is shown in any case. */
const nearlyFull = 0.8;

/** shownUses returns the limits of a tenant in the order of the form: the first ones, and those that are nearly full. */
export function shownUses(limits: Use[], all: boolean): Use[] {
  const ordered = limitFields.flatMap((f) => limits.filter((u) => u.limit === f.name));
  return all ? ordered : ordered.filter((u, i) => i < shown || u.used / u.room >= nearlyFull);
}
