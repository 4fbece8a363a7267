import type { UsedNow } from "../../api/schema";
import { count, money } from "../../lib/format";
import { Bar } from "../../ui/parts";
import { limitFields } from "./settings";

type Use = UsedNow["limits"][number];

function amount(limit: string, n: number): string {
  return limit.endsWith("_money") ? money(n) : count(Math.ceil(n));
}

/** usageText returns the usage of a limit as text, such as 3/10 rpm. */
function usageText(u: Use): string {
  return `${amount(u.limit, u.used)}/${amount(u.limit, u.room)} ${u.limit.replace("_", " ")}`;
}

/** The fullest limits are those that reject the next request. */
const shown = 2;

/** LimitBars shows the fullest limits of a tenant. */
export function LimitBars({ now, all }: { now: UsedNow | undefined; all?: boolean }) {
  const uses = [...(now?.limits ?? [])].sort((a, b) => b.used / b.room - a.used / a.room);
  if (uses.length === 0) return <span className="muted">no limits</span>;
  return (
    <span className={all ? "limits all" : "limits"}>
      {uses.slice(0, all ? uses.length : shown).map((u) => (
        <Bar key={u.limit} value={u.used} max={u.room} text={usageText(u)} label={labelOf(u.limit)} />
      ))}
      {!all && uses.length > shown && <small className="muted">+{uses.length - shown}</small>}
    </span>
  );
}

function labelOf(limit: string): string {
  return limitFields.find((f) => f.name === limit)?.label ?? limit;
}
