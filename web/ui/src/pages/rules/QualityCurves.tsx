import type { LabelReport } from "../../api/schema";
import { percent } from "../../lib/format";
import { boundsOf, gridOf, nameOf, pointOf, size } from "./curves";

/** QualityCurves draws the share of right answers by the share of requests at the large tier. */
export function QualityCurves({ of: r }: { of: LabelReport }) {
  const bounds = boundsOf(r);
  const at = (share: number, quality: number) => {
    const { x, y } = pointOf(bounds, share, quality);
    return `${x},${y}`;
  };
  const scored = r.curves.find((c) => c.name === "default")?.points ?? [];
  const band = [
    ...scored.map((p) => at(p.share, p.quality.high)),
    ...[...scored].reverse().map((p) => at(p.share, p.quality.low)),
  ];
  return (
    <figure className="quality">
      <svg viewBox={`0 0 ${size.width} ${size.height}`} role="img" aria-label={`Right answers by the share of requests at ${r.large_tier}`}>
        {gridOf(bounds).map((q) => {
          const { y } = pointOf(bounds, 0, q);
          return (
            <g key={q}>
              <line className="quality-grid" x1={size.left} x2={size.right} y1={y} y2={y} />
              <text x={size.left - 6} y={y + 4} textAnchor="end">
                {percent(q)}
              </text>
            </g>
          );
        })}
        {[0, 0.2, 0.4, 0.6, 0.8, 1].map((share) => {
          const { x } = pointOf(bounds, share, bounds.low);
          return (
            <text key={share} x={x} y={size.bottom + 18} textAnchor={share === 1 ? "end" : "middle"}>
              {percent(share)}
            </text>
          );
        })}
        <text x={(size.left + size.right) / 2} y={size.height - 4} textAnchor="middle">
          requests at {r.large_tier}
        </text>
        <polygon className="quality-band" points={band.join(" ")} />
        {r.curves.map((c) => (
          <polyline key={c.name} className={`quality-curve of-${c.name}`} points={c.points.map((p) => at(p.share, p.quality.value)).join(" ")} />
        ))}
      </svg>
      <figcaption>
        {r.curves.map((c) => (
          <span key={c.name} className="quality-name">
            <svg viewBox="0 0 36 8" aria-hidden="true">
              <line className={`quality-curve of-${c.name}`} x1="0" x2="36" y1="4" y2="4" />
            </svg>
            {nameOf(c, r.in_sample)}
          </span>
        ))}
        <span className="muted">The band is the 95 % interval of the default score.</span>
      </figcaption>
    </figure>
  );
}
