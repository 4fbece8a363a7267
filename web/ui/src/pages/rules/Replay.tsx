import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { base } from "../../api/client";
import type { ReplayAnswer } from "../../api/schema";
import { adminCurl } from "../../lib/curl";
import { clock, count, millis, money, percent, plural } from "../../lib/format";
import { Empty, Problem } from "../../ui/Panel";
import { Curl, Field } from "../../ui/parts";
import { DraftEditor } from "./DraftEditor";
import { replayDecisions } from "./queries";

interface ReplayProps {
  draft: string | undefined;
  onDraft: (d: string | undefined) => void;
}

/** Replay repeats the last decisions, under a draft or under the configuration in force. */
export function Replay({ draft, onDraft }: ReplayProps) {
  const [last, setLast] = useState("1000");
  const run = useMutation({ mutationFn: replayDecisions });
  const order = { last: Number(last) || 1000, ...(draft !== undefined && { draft }) };
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
          <Field label="Last requests">
            <input inputMode="numeric" pattern="[1-9][0-9]{0,4}" value={last} onChange={(e) => setLast(e.target.value)} />
          </Field>
          <DraftEditor draft={draft} onChange={onDraft} />
          <button type="submit" className="primary" disabled={run.isPending}>
            {run.isPending ? "Replaying…" : "Replay"}
          </button>
          {run.error && <Problem error={run.error} />}
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

function Report({ of: r, drafted }: { of: ReplayAnswer; drafted: boolean }) {
  if (r.n === 0) {
    return (
      <Empty>
        <strong>No records.</strong> Send some requests first; the gateway keeps the last ones (decisions.keep).
      </Empty>
    );
  }
  return (
    <div className="stack body padded">
      <p className="verdict">
        <strong>{summaryOf(r, drafted)}</strong>
      </p>
      <p className="muted small">
        {plural(r.n, "record")} from {clock(r.from)} to {clock(r.to)};{" "}
        {r.skipped.length > 0 && `${r.skipped.map((s) => `${count(s.n)} ${s.name}`).join(", ")} left out; `}
        reproduced {count(r.reproduced.n)} of {count(r.reproduced.of)} choices of a worker.
      </p>
      {(r.changes ?? []).length > 0 && (
        <ul className="changes">
          {r.changes!.map((c) => (
            <li key={c.path + c.op}>
              <code>{c.path}</code> {c.old ?? "unset"} → {c.new ?? "unset"}
            </li>
          ))}
        </ul>
      )}
      {drafted && <TierChanges of={r} />}
      <Estimates of={r} drafted={drafted} />
      {r.changed_tier.length > 0 && <Moves title="Requests that change tier" moves={r.changed_tier} />}
      {r.worker_moves.length > 0 && <Moves title="Requests that change worker" moves={r.worker_moves} />}
    </div>
  );
}

function summaryOf(r: ReplayAnswer, drafted: boolean): string {
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
              <td>{t.tier}</td>
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
      <dt>Regret, mean</dt>
      <dd>
        {both(millis(r.regret.now.mean_ms), millis(r.regret.draft.mean_ms))}{" "}
        <span className="muted small">by how much the best worker would have answered sooner</span>
      </dd>
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
                {m.from} → {m.to}
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
