import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { base } from "../../api/client";
import { tiersQuery } from "../../api/queries";
import type { ReplayAnswer, ReplayFilter } from "../../api/schema";
import { adminCurl } from "../../lib/curl";
import { clock, count, millis, money, percent, plural } from "../../lib/format";
import { Empty, Problem } from "../../ui/Panel";
import { Curl, Field } from "../../ui/parts";
import { classes } from "../tenants/settings";
import { DraftEditor } from "./DraftEditor";
import { problemsOf } from "./problems";
import { replayDecisions, tenantNamesQuery } from "./queries";
import { limitsOf, matrixOf } from "./report";

interface ReplayProps {
  draft: string | undefined;
  onDraft: (d: string | undefined) => void;
}

/** Replay repeats the last decisions, under a draft or under the configuration in force. */
export function Replay({ draft, onDraft }: ReplayProps) {
  const [last, setLast] = useState("1000");
  const [filter, setFilter] = useState<ReplayFilter>({});
  const run = useMutation({ mutationFn: replayDecisions });
  const chosen = Object.fromEntries(Object.entries(filter).filter(([, v]) => v !== ""));
  const order = { last: Number(last) || 1000, ...(Object.keys(chosen).length > 0 && { filter: chosen }), ...(draft !== undefined && { draft }) };
  return (
    <div className="playground">
      <section className="panel" aria-label="Replay">
        <form
          className="body stack padded"
          onSubmit={(e) => {
            e.preventDefault();
            run.mutate(order);
          }}
        >
          <p>
            Repeats the recorded decisions of the last requests. Without an edited configuration, the answer says whether the
            configuration in force explains them.
          </p>
          <Selection last={last} onLast={setLast} filter={filter} onFilter={setFilter} />
          <DraftEditor draft={draft} onChange={onDraft} error={run.error} />
          <button type="submit" className="primary" disabled={run.isPending}>
            {run.isPending ? "Replaying…" : "Replay"}
          </button>
          {run.error && !problemsOf(run.error) && <Problem error={run.error} />}
          {run.variables && <Curl text={adminCurl(base, "POST", "admin/route/replay", run.variables)} />}
        </form>
      </section>
      <section className="panel" aria-label="Result" aria-live="polite">
        {run.data ? (
          <Report of={run.data} drafted={run.variables?.draft !== undefined} />
        ) : (
          <Empty>
            <strong>No result yet.</strong> Press Replay. It takes a second, and sends nothing.
          </Empty>
        )}
      </section>
    </div>
  );
}

interface SelectionProps {
  last: string;
  onLast: (last: string) => void;
  filter: ReplayFilter;
  onFilter: (f: ReplayFilter) => void;
}

/** Selection chooses the records to replay. */
function Selection({ last, onLast, filter, onFilter }: SelectionProps) {
  const tiers = (useQuery(tiersQuery).data?.items ?? []).map((t) => t.name);
  const tenants = useQuery(tenantNamesQuery).data ?? [];
  const choices = [
    { name: "tenant", label: "Tenant", values: tenants },
    { name: "tier", label: "Tier or pool", values: tiers },
    { name: "class", label: "Priority", values: [...classes] },
  ] as const;
  return (
    <div className="fields">
      <Field label="Last requests">
        <input inputMode="numeric" pattern="[1-9][0-9]{0,4}" title="A number up to 99999" value={last} onChange={(e) => onLast(e.target.value)} />
      </Field>
      {choices.map((c) => (
        <Field key={c.name} label={c.label}>
          <select value={filter[c.name] ?? ""} onChange={(e) => onFilter({ ...filter, [c.name]: e.target.value })}>
            <option value="">all</option>
            {c.values.map((v) => (
              <option key={v}>{v}</option>
            ))}
          </select>
        </Field>
      ))}
    </div>
  );
}

function Report({ of: r, drafted }: { of: ReplayAnswer; drafted: boolean }) {
  if (r.records === 0) {
    return (
      <Empty>
        <strong>No records.</strong> Send some requests first, or select other ones; the gateway keeps the last ones
        (decisions.keep).
      </Empty>
    );
  }
  return (
    <div className="stack body padded">
      <p className="verdict">
        <strong>{summaryOf(r, drafted)}</strong>
      </p>
      <p className="muted small">
        {plural(r.records, "record")} from {clock(r.from)} to {clock(r.to)}. The configuration in force yields the recorded tier of{" "}
        {part(r.tiers_reproduced)} and the recorded worker of {part(r.reproduced)}.
      </p>
      <Limits of={r} />
      {(r.changes ?? []).length > 0 && (
        <ul className="changes">
          {r.changes!.map((c) => (
            <li key={c.path + c.op}>
              <code>{c.path}</code> {c.old ?? "unset"} → {c.new ?? "unset"}
            </li>
          ))}
        </ul>
      )}
      {(r.warnings ?? []).map((w) => (
        <p key={`${w.line} ${w.message}`} className="note warn">
          {w.line > 0 && `Line ${w.line}: `}
          {w.path} {w.message}
        </p>
      ))}
      {drafted && <TierChanges of={r} />}
      {r.changed_tier.length > 0 && <MovesMatrix of={r} />}
      <Estimates of={r} drafted={drafted} />
      {r.changed_tier.length > 0 && <Moves title="Requests that change tier" moves={r.changed_tier} />}
      {r.worker_moves.length > 0 && <Moves title="Requests that change worker" moves={r.worker_moves} />}
    </div>
  );
}

function part(p: { n: number; of: number }): string {
  return `${count(p.n)} of ${count(p.of)}`;
}

/** Limits names the records that were left out or decided without a part of their input. */
function Limits({ of: r }: { of: ReplayAnswer }) {
  const all = limitsOf(r);
  if (all.length === 0) return null;
  return (
    <ul className="changes small">
      {all.map((text) => (
        <li key={text}>{text}</li>
      ))}
    </ul>
  );
}

/** MovesMatrix shows where the requests of each tier go. */
function MovesMatrix({ of: r }: { of: ReplayAnswer }) {
  const m = matrixOf(r);
  return (
    <div className="table">
      <table aria-label="Requests by tier before and after">
        <thead>
          <tr>
            <th scope="col">From ↓ to →</th>
            {m.to.map((to) => (
              <th key={to} scope="col" className="num">
                {to || "refused"}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {m.from.map((from) => (
            <tr key={from}>
              <th scope="row">{from || "refused"}</th>
              {m.to.map((to) => (
                <td key={to} className={from === to || m.count(from, to) === 0 ? "num muted" : "num moved"}>
                  {count(m.count(from, to))}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function summaryOf(r: ReplayAnswer, drafted: boolean): string {
  if (r.n === 0) return `None of ${plural(r.records, "record")} can be decided again.`;
  const tiers = r.changed_tier.reduce((sum, m) => sum + m.n, 0);
  if (!drafted) {
    return r.reproduced.n === r.reproduced.of && tiers === 0
      ? "The configuration in force explains all these decisions."
      : `The configuration in force explains ${count(r.reproduced.n)} of ${count(r.reproduced.of)} choices of a worker, and would change the tier of ${count(tiers)} requests.`;
  }
  if (tiers === 0 && r.changed_worker === 0) return `None of ${count(r.n)} requests would change tier or worker.`;
  return `${count(tiers)} of ${count(r.n)} requests would change tier, and ${count(r.changed_worker)} would change worker.`;
}

function TierChanges({ of: r }: { of: ReplayAnswer }) {
  return (
    <div className="table">
      <table aria-label="Requests by tier">
        <thead>
          <tr>
            <th scope="col">Tier</th>
            {["Requests now", "edited", "Prompt tokens now", "edited", "Cost now", "edited"].map((h, i) => (
              <th key={i} scope="col" className="num">
                {h}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {r.tiers.map((t) => (
            <tr key={t.tier}>
              <td>{t.tier || "refused"}</td>
              <td className="num">{count(t.requests.now)}</td>
              <td className="num">{count(t.requests.draft)}</td>
              <td className="num">{count(t.prompt_tokens.now)}</td>
              <td className="num">{count(t.prompt_tokens.draft)}</td>
              <td className="num">{t.cost ? money(t.cost.now) : "–"}</td>
              <td className="num">{t.cost ? money(t.cost.draft) : "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Estimates({ of: r, drafted }: { of: ReplayAnswer; drafted: boolean }) {
  const both = (now: string, draft: string) => (drafted ? `${now} → ${draft}` : now);
  return (
    <dl className="facts">
      {r.est_prefix_hit && (
        <>
          <dt>Prefix hits, estimated</dt>
          <dd>{both(percent(r.est_prefix_hit.now, 1), percent(r.est_prefix_hit.draft, 1))}</dd>
        </>
      )}
      {r.real_prefix_hit !== undefined && (
        <>
          <dt>Prefix hits, reported</dt>
          <dd>{percent(r.real_prefix_hit, 1)}</dd>
        </>
      )}
      {r.predicted_hit !== undefined && (
        <>
          <dt>Prefix hits, predicted</dt>
          <dd>{percent(r.predicted_hit, 1)}</dd>
        </>
      )}
      <dt>Regret, mean</dt>
      <dd>
        {both(millis(r.regret.now.mean_ms), millis(r.regret.draft.mean_ms))}{" "}
        <span className="muted small">by how much the best worker would have answered sooner</span>
      </dd>
      <dt>Regret, p95</dt>
      <dd>{both(millis(r.regret.now.p95_ms), millis(r.regret.draft.p95_ms))}</dd>
      <dt>Wrong choices</dt>
      <dd>
        {both(percent(r.regret.now.wrong, 1), percent(r.regret.draft.wrong, 1))}{" "}
        <span className="muted small">over 20 % slower than the best worker</span>
      </dd>
      {r.changed_worker_by.length > 0 && (
        <>
          <dt>Reasons of the changes</dt>
          <dd>{r.changed_worker_by.map((c) => `${c.name} ${count(c.n)}`).join(", ")}</dd>
        </>
      )}
      {r.cost && (
        <>
          <dt>Cost</dt>
          <dd>{both(money(r.cost.now), money(r.cost.draft))}</dd>
        </>
      )}
    </dl>
  );
}

interface MovesProps {
  title: string;
  moves: { from: string; to: string; n: number; examples: string[]; tier?: string }[];
}

function Moves({ title, moves }: MovesProps) {
  return (
    <div className="table">
      <table aria-label={title}>
        <thead>
          <tr>
            <th scope="col">{title}</th>
            <th scope="col" className="num">
              Requests
            </th>
            <th scope="col">Examples</th>
          </tr>
        </thead>
        <tbody>
          {moves.map((m) => (
            <tr key={`${m.tier} ${m.from} ${m.to}`}>
              <td>
                {m.from} → {m.to || "refused"}
              </td>
              <td className="num">{count(m.n)}</td>
              <td>
                {m.examples.slice(0, 2).map((id) => (
                  <Link key={id} to="/decisions" search={{ id }} className="example">
                    {id.slice(0, 8)}
                  </Link>
                ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
