import { memo } from "react";
import type { DecisionView } from "../../api/schema";
import { millis, UNKNOWN } from "../../lib/format";
import { codedText, reasonText } from "../../lib/reasons";
import { isPlain } from "../../ui/DataTable";
import { Badge } from "../../ui/parts";
import type { FilterName } from "./filter";
import { endOf, prefixOf, reasonOf, timeOf, tokensOf, toneOf, triesOf } from "./rows";
import { cacheText, isKept } from "./stages";

interface DecisionRowProps {
  row: DecisionView;
  index: number;
  onOpen: (id: string) => void;
}

/** DecisionRow is one record of the list. */
export const DecisionRow = memo(function DecisionRow({ row: d, index, onOpen }: DecisionRowProps) {
  const reason = reasonOf(d);
  return (
    <tr aria-rowindex={index} onClick={(e) => isPlain(e) && onOpen(d.request_id)}>
      <td>
        <button type="button" className="link num" title={`Began ${d.time}, request ${d.request_id}`} onClick={() => onOpen(d.request_id)}>
          {timeOf(endOf(d))}
        </button>
      </td>
      <td>
        {!d.tenant && d.key_hint ? (
          <span className="muted" title={`An unknown key, sent from ${d.client_ip}`}>
            {d.key_hint}
          </span>
        ) : (
          <Value name="tenant" value={d.tenant} />
        )}
      </td>
      <td>
        <span className="pair">
          <Value name="model" value={d.requested_model} />
          {d.tier && (
            <>
              <span>→</span>
              <Value name="tier" value={d.tier} />
            </>
          )}
        </span>
      </td>
      <td title={chainText(d)}>
        <Chain row={d} />
      </td>
      <td>
        <Value name={reason.filter} value={reason.value} title={reason.text} />
      </td>
      <td>
        <Badge tone={toneOf(d.outcome)}>
          <Value name="status" value={String(d.status)} />
          {d.outcome !== "ok" && <Value name="outcome" value={d.outcome} text={reasonText("outcome", d.outcome)} second />}
        </Badge>
      </td>
      <td className="num">{d.queue_ms > 0 ? millis(d.queue_ms) : UNKNOWN}</td>
      <td className="num">{d.ttft_ms ? millis(d.ttft_ms) : UNKNOWN}</td>
      <td className="num">{millis(d.duration_ms)}</td>
      <td className="num">{tokensOf(d)}</td>
      <td className="num">{prefixOf(d)}</td>
    </tr>
  );
});

function chainText(d: DecisionView): string {
  if (d.cache && isKept(d)) return cacheText(d.cache);
  return triesOf(d)
    .map((t) => `${t.worker} ${t.good ? "✓" : `✗ ${codedText("attempt", t.text)}`}`)
    .join(" → ");
}

function Chain({ row: d }: { row: DecisionView }) {
  const tries = triesOf(d);
  if (isKept(d)) return <span className="chip info">kept answer</span>;
  if (tries.length === 0) return <span className="muted">none</span>;
  return tries.map((t, i) => (
    <span key={i}>
      {i > 0 && " → "}
      <Value name="worker" value={t.worker} />{" "}
      {t.good ? (
        <span className="good" role="img" aria-label="answered">
          ✓
        </span>
      ) : (
        <span className="bad">✗ {t.text}</span>
      )}
      {t.prefill && (
        <>
          {" "}
          ← <Value name="worker" value={t.prefill} second />
        </>
      )}
    </span>
  ));
}

interface ValueProps {
  name: FilterName;
  value: string | undefined;
  /** What is shown; the value if absent. */
  text?: string;
  title?: string;
  second?: boolean;
}

// A click on a value filters by it. The keyboard has the same conditions in the form above, so a row is one
// stop of the Tab key and not eight.
function Value({ name, value, text = value, title = text, second }: ValueProps) {
  if (!value) return <span className="muted">{UNKNOWN}</span>;
  return (
    <button type="button" tabIndex={-1} className={second ? "value second" : "value"} data-name={name} data-value={value} title={title}>
      {text}
    </button>
  );
}
