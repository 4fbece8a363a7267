import type { DecisionView } from "../../api/schema";
import { millis } from "../../lib/format";
import { spansOf } from "./spans";

/** Waterfall shows the phases of a request over its duration. */
export function Waterfall({ of: d }: { of: DecisionView }) {
  const spans = spansOf(d);
  const end = Math.max(d.duration_ms, ...spans.map((s) => s.to));
  if (end <= 0 || spans.length === 0) return null;
  const part = (ms: number) => `${(ms / end) * 100}%`;
  return (
    <div className="table">
      <table className="waterfall" aria-label="Phases">
        <thead>
          <tr>
            <th scope="col">Phase</th>
            <th scope="col" className="num">
              From
            </th>
            <th scope="col" className="num">
              Duration
            </th>
            <th scope="col" className="chart">
              <span className="axis">
                <span>0</span>
                <span>{millis(end)}</span>
              </span>
            </th>
          </tr>
        </thead>
        <tbody>
          {spans.map((s) => (
            <tr key={s.name + s.from}>
              <td>{s.name}</td>
              <td className="num">{millis(s.from)}</td>
              <td className="num">{millis(s.to - s.from)}</td>
              <td className="chart">
                <span className={`span ${s.kind}`} style={{ marginLeft: part(s.from), width: part(s.to - s.from) }} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
