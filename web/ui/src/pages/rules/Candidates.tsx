import type { Candidate, Excluded } from "../../api/schema";
import { clock, count } from "../../lib/format";
import { codedText, reasonText } from "../../lib/reasons";
import { lmcacheText, marginOf, ordered, termNames } from "./candidates";
import { scoreMeaning, type ScoreMeaning } from "./scores";

interface CandidatesProps {
  of: { candidates?: Candidate[] | null; worker?: string; policy?: string; reason?: string };
  /** Workers that could not be selected, with the reason. */
  others?: Excluded[];
  /** What they are candidates for. */
  label?: string;
}

/** Candidates is the table of all workers of a choice with the terms of their scores. */
export function Candidates({ of: choice, others = [], label = "Candidates" }: CandidatesProps) {
  const all = ordered(choice.candidates ?? [], choice.worker);
  const names = termNames(all);
  const margin = marginOf(all, choice.worker);
  const meaning = scoreMeaning(choice.policy, choice.reason);
  return (
    <div className="stack tight">
      <h3>
        {label} {choice.policy && `by ${choice.policy}`} {choice.reason && <small className="muted">({codedText("worker", choice.reason)})</small>}
      </h3>
      {margin && <p className="small">{margin}</p>}
      <div className="table candidates" tabIndex={0} role="region" aria-label={label}>
        <table aria-label={label}>
          <Header names={names} meaning={meaning} />
          <tbody>
            {all.map((c) => (
              <Row key={c.worker} of={c} names={names} chosen={c.worker === choice.worker} />
            ))}
            {others.map((o) => (
              <tr key={o.worker} className="muted">
                <td>{o.worker}</td>
                <td colSpan={names.length + 4} className="wrap">
                  <span className="chip">{o.why}</span> {reasonText("exclusion", o.why)}
                  {o.until && `, until ${clock(o.until)}`}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {meaning && <Meaning of={meaning} names={names} />}
    </div>
  );
}

function Header({ names, meaning }: { names: string[]; meaning: ScoreMeaning | undefined }) {
  const unit = (u: string | undefined) => u && <small className="muted"> {u}</small>;
  return (
    <thead>
      <tr>
        <th scope="col">Worker</th>
        <th scope="col" className="num" title={meaning?.text}>
          Score{unit(meaning?.unit)}
        </th>
        {names.map((n) => (
          <th key={n} scope="col" className="num" title={meaning?.terms[n]?.text}>
            {n}
            {unit(meaning?.terms[n]?.unit)}
          </th>
        ))}
        <th scope="col" className="num" title="Tokens of the prompt in the worker's cache">
          Cached
        </th>
        <th scope="col" className="num" title="Requests in flight on the worker, and its max_inflight">
          In flight
        </th>
        <th scope="col" className="num">
          Weight
        </th>
      </tr>
    </thead>
  );
}

// Most scores are seconds; a millionth of one says nothing.
const number = (n: number) => (Number.isInteger(n) ? String(n) : Math.abs(n) < 0.0005 ? "0" : n.toFixed(n < 10 ? 3 : 1));

function Row({ of: c, names, chosen }: { of: Candidate; names: string[]; chosen: boolean }) {
  return (
    <tr className={chosen ? "chosen" : c.excluded ? "muted" : undefined}>
      <td>
        {c.worker} {chosen && <span className="chip info">selected</span>}
        {c.full && c.excluded !== "full" && <span className="chip warn">full</span>}
        {c.excluded && (
          <>
            <span className="chip">{c.excluded}</span> <small>{reasonText("exclusion", c.excluded)}</small>
          </>
        )}
      </td>
      <td className="num">{c.excluded ? "–" : number(c.score)}</td>
      {names.map((n) => (
        <td key={n} className="num">
          {c.terms?.[n] === undefined ? "–" : number(c.terms[n])}
        </td>
      ))}
      <td className="num">
        {count(c.overlap_tokens)}
        {c.kv_events && <small className="muted"> events</small>}
        <small className="muted">{lmcacheText(c)}</small>
      </td>
      <td className="num">
        {count(c.inflight)}
        {c.max_inflight ? `/${count(c.max_inflight)}` : ""}
      </td>
      <td className="num">{c.weight}</td>
    </tr>
  );
}

function Meaning({ of: meaning, names }: { of: ScoreMeaning; names: string[] }) {
  const terms = names.filter((n) => meaning.terms[n]);
  const text = `Score: ${meaning.text}. The lowest is the best.`;
  if (terms.length === 0) return <p className="small">{text}</p>;
  return (
    <details className="small">
      <summary>{text}</summary>
      <dl className="facts">
        {terms.map((n) => (
          <div key={n} className="contents">
            <dt>{n}</dt>
            <dd>{meaning.terms[n]!.text}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}
