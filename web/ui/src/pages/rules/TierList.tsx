import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { tiersQuery } from "../../api/queries";
import type { TierState } from "../../api/schema";
import { leaves } from "../../lib/diff";
import { count, money } from "../../lib/format";
import { Badge, toneOfWorker } from "../../ui/parts";
import { Panel } from "../../ui/Panel";

/** TierList shows the tiers, least capable first, then the pools. */
export function TierList() {
  const tiers = useQuery(tiersQuery);
  return (
    <Panel title="Tiers, least capable first, and pools" query={tiers} rows={6}>
      {(page) => (
        <div className="tiers">
          {page.items.map((t) => (
            <Tier key={t.name} tier={t} />
          ))}
        </div>
      )}
    </Panel>
  );
}

function Tier({ tier: t }: { tier: TierState }) {
  return (
    <section aria-label={t.name} className="stack tight">
      <h3>
        <Link to="/workers" search={{ pool: t.name }}>
          {t.name}
        </Link>{" "}
        {!t.tier && <small className="muted">pool</small>}
      </h3>
      <dl className="facts">
        <dt>Model</dt>
        <dd>{t.model || "as requested"}</dd>
        <dt>Further names</dt>
        <dd>{t.models.filter((m) => m !== t.model).join(", ") || "none"}</dd>
        <dt>Serves</dt>
        <dd>{t.serves.join(", ")}</dd>
        <dt>Context</dt>
        <dd>{t.context ? `${count(t.context)} tokens` : "unknown"}</dd>
        <dt>Price</dt>
        <dd>
          {t.price.input || t.price.output
            ? `${money(t.price.input)} input, ${money(t.price.output)} output per million tokens`
            : "none"}
        </dd>
        <dt>Policy</dt>
        <dd>{t.learned.policy}</dd>
        <dt>Workers</dt>
        <dd className="row">
          {Object.entries(t.workers).map(([state, n]) => (
            <Badge key={state} tone={toneOfWorker(state)}>
              {n} {state}
            </Badge>
          ))}
        </dd>
        <dt>Queued</dt>
        <dd>{count(t.queued)}</dd>
      </dl>
      <details>
        <summary>Settings in force</summary>
        <dl className="facts small">
          {[...leaves(t.config)].map(([path, value]) => (
            <div key={path} className="contents">
              <dt>
                <code>{path}</code>
              </dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
      </details>
    </section>
  );
}
