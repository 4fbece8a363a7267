import { Fragment, type ReactNode } from "react";
import type { ReplayAnswer } from "../../api/schema";
import { count, millis, money, percent } from "../../lib/format";
import { codedText } from "../../lib/reasons";

/** Estimates shows the estimated effect on caches, waits and cost; with a draft, before and after. */
export function Estimates({ of: r, drafted }: { of: ReplayAnswer; drafted: boolean }) {
  const all = estimatesOf(r, (now, draft) => (drafted ? `${now} → ${draft}` : now));
  return (
    <dl className="facts">
      {all.map((e) => (
        <Fragment key={e.name}>
          <dt>{e.name}</dt>
          <dd>
            {e.value} {e.meaning && <span className="muted small">{e.meaning}</span>}
          </dd>
        </Fragment>
      ))}
    </dl>
  );
}

interface Estimate {
  name: string;
  value: ReactNode;
  meaning?: string;
}

function estimatesOf(r: ReplayAnswer, both: (now: string, draft: string) => string): Estimate[] {
  const { now, draft } = r.regret;
  const all: (Estimate | false | undefined)[] = [
    r.est_prefix_hit && { name: "Prefix hits, estimated", value: both(percent(r.est_prefix_hit.now, 1), percent(r.est_prefix_hit.draft, 1)) },
    r.real_prefix_hit !== undefined && { name: "Prefix hits, reported", value: percent(r.real_prefix_hit, 1) },
    r.predicted_hit !== undefined && { name: "Prefix hits, predicted", value: percent(r.predicted_hit, 1) },
    {
      name: "Avoidable wait, mean",
      value: both(millis(now.mean_ms), millis(draft.mean_ms)),
      meaning: "Estimated time to the first token at the selected worker, minus that at the best candidate (regret).",
    },
    { name: "Avoidable wait, p95", value: both(millis(now.p95_ms), millis(draft.p95_ms)) },
    {
      name: "Slower choices",
      value: both(percent(now.wrong, 1), percent(draft.wrong, 1)),
      meaning: "Their estimate is over 20 % and over 1 ms above that of the best candidate.",
    },
    r.changed_worker_by.length > 0 && {
      name: "Reasons of the changes",
      value: r.changed_worker_by.map((c) => `${count(c.n)} by ${codedText("worker", c.name)}`).join("; "),
    },
    r.cost && { name: "Cost", value: both(money(r.cost.now), money(r.cost.draft)) },
  ];
  return all.filter((e): e is Estimate => Boolean(e));
}
