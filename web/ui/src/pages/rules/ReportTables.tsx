import { Link } from "@tanstack/react-router";
import type { ReplayAnswer } from "../../api/schema";
import { count, money } from "../../lib/format";
import { matrixOf } from "./report";

/** Requests without a tier are rejected. */
const tierName = (tier: string) => tier || "rejected";

/** MovesMatrix shows where the requests of each tier go. */
export function MovesMatrix({ of: r }: { of: ReplayAnswer }) {
  const m = matrixOf(r);
  return (
    <div className="table">
      <table aria-label="Requests by tier before and after">
        <thead>
          <tr>
            <th scope="col">From ↓ to →</th>
            {m.to.map((to) => (
              <th key={to} scope="col" className="num">
                {tierName(to)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {m.from.map((from) => (
            <tr key={from}>
              <th scope="row">{tierName(from)}</th>
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

/** TierChanges compares the traffic of each tier. */
export function TierChanges({ of: r }: { of: ReplayAnswer }) {
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
              <td>{tierName(t.tier)}</td>
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

interface MovesProps {
  title: string;
  moves: { from: string; to: string; n: number; examples: string[]; tier?: string }[];
}

/** Moves lists what changes, with examples. */
export function Moves({ title, moves }: MovesProps) {
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
                {m.tier && <span className="muted">{m.tier}: </span>}
                {m.from} → {tierName(m.to)}
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
