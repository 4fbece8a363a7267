import type { Classification, Excluded, Explanation, RouteExplanation, Step } from "../../api/schema";
import { count, millis, plural } from "../../lib/format";
import { Badge, type Tone } from "../../ui/parts";
import { Candidates } from "./Candidates";

const tones: Record<Explanation["outcome"], Tone> = {
  route: "ok",
  queue: "warn",
  reject: "err",
  answer: "ok",
  abandoned: "off",
  unknown: "off",
};

/** Answer shows an explanation, beside that under a draft if there is one. */
export function Answer({ of: live }: { of: RouteExplanation }) {
  if (!live.draft) return <One of={live} />;
  const changed = live.changed ?? [];
  return (
    <div>
      <p className="body padded" role="status">
        <strong>
          {changed.length === 0
            ? "The edited configuration gives the same outcome, tier and worker."
            : `The edited configuration changes ${changed.join(", ")}.`}
        </strong>
      </p>
      {(live.changes ?? []).length > 0 && (
        <ul className="body changes">
          {live.changes!.map((c) => (
            <li key={c.path + c.op}>
              <code>{c.path}</code> {c.old ?? "unset"} → {c.new ?? "unset"}
            </li>
          ))}
        </ul>
      )}
      {(live.warnings ?? []).map((w) => (
        <p key={`${w.line} ${w.message}`} className="note warn warning">
          {w.line > 0 && `Line ${w.line}: `}
          {w.path} {w.message}
        </p>
      ))}
      <div className="compare">
        <section aria-label="In force">
          <h2>In force</h2>
          <One of={live} />
        </section>
        <section aria-label="Edited">
          <h2>Edited</h2>
          <One of={live.draft} />
        </section>
      </div>
    </div>
  );
}

function One({ of: e }: { of: Explanation }) {
  return (
    <div className="stack body padded">
      <p className="verdict">
        <Badge tone={tones[e.outcome]}>{e.outcome}</Badge>
        {e.tier && <strong>{e.tier}</strong>}
        {e.worker && (
          <>
            → <strong data-testid="worker">{e.worker}</strong>
          </>
        )}
        {e.status && <code>{e.status}</code>}
      </p>
      <p>{e.summary}</p>
      {e.error && <p className="note err">{e.error}</p>}
      {notesOf(e).map((n) => (
        <p key={n} className="note">
          {n}
        </p>
      ))}
      <Ladder steps={e.steps ?? []} />
      {e.classified && <Signals of={e.classified} />}
      {(e.candidates ?? []).length > 0 && <Candidates of={e} others={othersOf(e)} />}
      <p className="muted small">
        About {plural(e.prompt_tokens_estimate, "prompt token")}, {plural(e.blocks, "block")}. No side effects.
      </p>
    </div>
  );
}

/** othersOf returns the workers that were no candidates. */
function othersOf(e: Explanation): Excluded[] {
  return (e.steps ?? []).flatMap((s) => s.worker?.others ?? []);
}

/** notesOf returns the notes that no step repeats. */
function notesOf(e: Explanation): string[] {
  const said = new Set((e.steps ?? []).map((s) => s.detail));
  return [...(e.notes ?? []), ...(e.note ? [e.note] : [])].filter((n) => !said.has(n));
}

const stages: Record<Step["stage"], string> = {
  auth: "Tenant and key",
  request: "Request",
  tier: "Tier",
  limits: "Limits",
  queue: "Queue",
  worker: "Worker",
};

function Ladder({ steps }: { steps: Step[] }) {
  return (
    <ol className="ladder">
      {steps.map((s, i) => (
        <li key={i}>
          <Badge tone={s.ok ? "ok" : "err"}>{stages[s.stage]}</Badge>
          <span>
            {s.detail}
            <Detail of={s} />
          </span>
        </li>
      ))}
    </ol>
  );
}

/** Detail shows what a step has besides its sentence. */
function Detail({ of: s }: { of: Step }) {
  const lines = [
    ...(s.tier?.moves ?? []).map((m) => `${m.tier} was passed over${m.why ? `: ${m.why}` : ""}`),
    ...(s.limits ?? []).map((l) => `${l.scope} ${l.limit}: ${count(l.used)} of ${count(l.room)} used${l.would_use ? `, this request ${count(l.would_use)}` : ""}`),
    ...(s.queue?.would === "wait" ? [`estimated wait ${millis(s.queue.estimated_wait_ms)}, up to ${count(s.queue.ahead)} requests ahead`] : []),
  ];
  return lines.map((text) => (
    <small key={text} className="muted detail">
      {text}
    </small>
  ));
}

/** Signals are the values that the classifier compared, in its order. */
function Signals({ of: c }: { of: Classification }) {
  return (
    <details>
      <summary>
        Classifier: {c.tier} by the rule {c.rule}
      </summary>
      <div className="table">
        <table aria-label="Signals of the classifier">
          <thead>
            <tr>
              <th scope="col">Rule</th>
              <th scope="col" className="num">
                Value
              </th>
              <th scope="col" className="num">
                Threshold
              </th>
              <th scope="col">Selects</th>
              <th scope="col">Matched</th>
            </tr>
          </thead>
          <tbody>
            {(c.signals ?? []).map((s, i) => (
              <tr key={`${s.rule}-${i}`}>
                <td>{s.rule}</td>
                <td className="num">{count(s.value)}</td>
                <td className="num">{s.threshold === undefined ? "" : count(s.threshold)}</td>
                <td>{s.tier ?? <span className="muted">nothing</span>}</td>
                <td className="wrap">
                  {(s.matched ?? []).join(", ")} {s.not_counted}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
