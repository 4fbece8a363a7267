import type { Classification } from "../../api/schema";
import { count } from "../../lib/format";

/** Signals are the values that the classifier compared, in its order. */
export function Signals({ of: c }: { of: Classification }) {
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
