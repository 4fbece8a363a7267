import type { UsedNow } from "../../api/schema";
import { Bar } from "../../ui/parts";
import { shownUses, usageText } from "./limits";
import { limitFields } from "./settings";

/** LimitBars shows the use of a tenant's limits; without all, only the first and the nearly full ones. */
export function LimitBars({ now, all = false }: { now: UsedNow | undefined; all?: boolean }) {
  const limits = now?.limits ?? [];
  const uses = shownUses(limits, all);
  const hidden = limits.length - uses.length;
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
