import { useQuery } from "@tanstack/react-query";
import type { AuditView } from "../../api/schema";
import { targetText } from "../../lib/audit";
import { differences } from "../../lib/diff";
import { resultText } from "../../lib/format";
import { Dialog } from "../../ui/Dialog";
import { Empty, Problem } from "../../ui/Panel";
import { CopyButton } from "../../ui/parts";
import { entryQuery } from "./queries";

interface FetchedDetailsProps {
  id: string;
  onClose: () => void;
}

/** FetchedDetails shows an entry that is not in the list, such as an older one or one that the filter hides. */
export function FetchedDetails({ id, onClose }: FetchedDetailsProps) {
  const { data, error, refetch } = useQuery(entryQuery(id));
  if (data) return <Details entry={data} onClose={onClose} />;
  if (!error && data === undefined) return null; // still loading
  return (
    <Dialog title={`Entry ${id}`} drawer onClose={onClose}>
      {error ? (
        <Problem error={error} retry={() => void refetch()} />
      ) : (
        <Empty>
          <strong>Entry {id} does not exist.</strong> Entries are numbered from 1, and the list shows the newest one.
        </Empty>
      )}
    </Dialog>
  );
}

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
