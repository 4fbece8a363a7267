import type { Override } from "../../api/schema";
import { CopyButton } from "../../ui/parts";

/** KeepWeights says which lines of config.yaml make the weights of overrides permanent. */
export function KeepWeights({ overrides }: { overrides: Pick<Override, "worker" | "weight">[] }) {
  const weights = overrides.filter((o) => o.weight !== undefined);
  if (weights.length === 0) return null;
  return (
    <div className="stack tight" role="group" aria-label="Weights for the file">
      <p>To keep {weights.length === 1 ? "this weight" : "these weights"}:</p>
      {weights.map((o) => (
        <p key={o.worker} className="row">
          <span>
            add <code>weight: {o.weight}</code> to {o.worker} in the file
          </span>
          <CopyButton text={`weight: ${o.weight}`} />
        </p>
      ))}
    </div>
  );
}
