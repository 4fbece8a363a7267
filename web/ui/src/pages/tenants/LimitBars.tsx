import type { UsedNow } from "../../api/schema";
import { count, money } from "../../lib/format";
import { Bar } from "../../ui/parts";
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

/** The fullest limits are those that reject the next request. */
const shown = 2;

/** LimitBars shows the fullest limits of a tenant. */
export function LimitBars({ now, all }: { now: UsedNow | undefined; all?: boolean }) {
  const fullest = [...(now?.limits ?? [])].sort((a, b) => b.used / b.room - a.used / a.room).slice(0, all ? undefined : shown);
  const uses = limitFields.flatMap((f) => fullest.filter((u) => u.limit === f.name)); // rows keep their order
  const hidden = (now?.limits ?? []).length - uses.length;
  if (uses.length === 0) return <span className="muted">no limits</span>;
  return (
    <span className={all ? "limits all" : "limits"}>
      {uses.map((u) => (
        <Bar key={u.limit} value={u.used} max={u.room} text={usageText(u)} label={labelOf(u.limit)} />
      ))}
      {hidden > 0 && <small className="muted">+{hidden}</small>}
    </span>
  );
}

function labelOf(limit: string): string {
  return limitFields.find((f) => f.name === limit)?.label ?? limit;
}
