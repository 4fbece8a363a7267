import type { AuditView } from "../../api/schema";
import { targetText } from "../../lib/audit";
import { differences } from "../../lib/diff";
import { resultText } from "../../lib/format";
import { Dialog } from "../../ui/Dialog";
import { CopyButton } from "../../ui/parts";

/** Details shows an entry with each value that changed. */
export function Details({ entry, onClose }: { entry: AuditView; onClose: () => void }) {
  return (
    <Dialog title={`${entry.action} ${targetText(entry)}`} drawer onClose={onClose}>
      <dl className="facts">
        <dt>Time</dt>
        <dd>{new Date(entry.at).toISOString()}</dd>
        <dt>Actor</dt>
        <dd>
          {entry.actor} {entry.role && `(${entry.role})`} by {entry.via}
        </dd>
        <dt>Address</dt>
        <dd>{entry.ip || "–"}</dd>
        <dt>Request</dt>
        <dd>{entry.request_id || "–"}</dd>
        <dt>Result</dt>
        <dd>{resultText(entry.outcome)}</dd>
        <dt>Hash</dt>
        <dd>
          <code>{entry.hash}</code> <CopyButton text={entry.hash} />
        </dd>
      </dl>
      <table className="spaced" aria-label="Changed values">
        <thead>
          <tr>
            <th scope="col">Value</th>
            <th scope="col">Before</th>
            <th scope="col">After</th>
          </tr>
        </thead>
        <tbody>
          {differences(entry.before, entry.after).map((d) => (
            <tr key={d.path}>
              <td>
                <code>{d.path}</code>
              </td>
              <td className="wrap">{d.before ?? "–"}</td>
              <td className="wrap">{d.after ?? "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Dialog>
  );
}
