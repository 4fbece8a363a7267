import type { Candidate, Excluded } from "../../api/schema";
import { count } from "../../lib/format";
import { marginOf, ordered, termNames } from "./candidates";

interface CandidatesProps {
  of: { candidates?: Candidate[] | null; worker?: string; policy?: string; reason?: string };
  /** Workers that could not be selected, with the reason. */
  others?: Excluded[];
}

// Most scores are seconds; a millionth of one says nothing.
const score = (n: number) => (Number.isInteger(n) ? String(n) : Math.abs(n) < 0.0005 ? "0" : n.toFixed(n < 10 ? 3 : 1));

/** Candidates is the table of all workers of a choice with the terms of their scores. */
export function Candidates({ of: choice, others = [] }: CandidatesProps) {
  const all = ordered(choice.candidates ?? [], choice.worker);
  const names = termNames(all);
  const margin = marginOf(all, choice.worker);
  return (
    <div className="stack tight">
      <h3>
        Candidates by {choice.policy} {choice.reason && <small className="muted">({choice.reason})</small>}
      </h3>
      {margin && <p className="small">{margin}</p>}
      <div className="table candidates" tabIndex={0} role="region" aria-label="Candidates">
        <table aria-label="Candidates">
          <thead>
            <tr>
              <th scope="col">Worker</th>
              <th scope="col" className="num">
                Score
              </th>
              {names.map((n) => (
                <th key={n} scope="col" className="num">
                  {n}
                </th>
              ))}
              <th scope="col" className="num" title="Tokens of the prompt in the worker's cache">
                Cached
              </th>
              <th scope="col" className="num">
                In flight
              </th>
              <th scope="col" className="num">
                Weight
              </th>
            </tr>
          </thead>
          <tbody>
            {all.map((c) => (
              <tr key={c.worker} className={c.worker === choice.worker ? "chosen" : c.excluded ? "muted" : undefined}>
                <td>
                  {c.worker} {c.worker === choice.worker && <span className="chip info">selected</span>}
                  {c.excluded && <span className="chip">{c.excluded}</span>}
                  {c.full && <span className="chip warn">full</span>}
                </td>
                <td className="num">{c.excluded ? "–" : score(c.score)}</td>
                {names.map((n) => (
                  <td key={n} className="num">
                    {c.terms?.[n] === undefined ? "–" : score(c.terms[n])}
                  </td>
                ))}
                <td className="num">
                  {count(c.overlap_tokens)}
                  {c.kv_events && <small className="muted"> events</small>}
                </td>
                <td className="num">
                  {count(c.inflight + (c.other_gateways_inflight ?? 0))}
                  {c.max_inflight ? `/${count(c.max_inflight)}` : ""}
                </td>
                <td className="num">{c.weight}</td>
              </tr>
            ))}
            {others.map((o) => (
              <tr key={o.worker} className="muted">
                <td colSpan={names.length + 5}>
                  {o.worker}: {o.why}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}
