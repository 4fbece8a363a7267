import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { statusQuery } from "../../api/queries";
import { saveAs } from "../../lib/download";
import { clock } from "../../lib/format";
import { useFeed, useTopic } from "../../live/live";
import { Dialog } from "../../ui/Dialog";
import { Badge, Code, CopyButton } from "../../ui/parts";
import { dataOrigin, snippets } from "../clients/snippets";
import { firstUseOf } from "./firstUse";
import { listQuery } from "./queries";

/** IssuedKey is a new key with its secret, which nothing but the dialog keeps. */
export interface IssuedKey {
  id: string;
  secret: string;
}

export type OnIssued = (key: IssuedKey) => void;

interface NewKeyProps {
  tenant: string;
  issued: IssuedKey;
  onClose: () => void;
}

/** NewKey shows the secret of a new key once. Nothing keeps the secret after it is closed. */
export function NewKey({ tenant, issued: { id, secret }, onClose }: NewKeyProps) {
  const [stored, setStored] = useState(false);
  const status = useQuery(statusQuery).data;
  const origin = status && dataOrigin(status.listen.data.address, status.listen.data.tls, new URL(location.href));
  return (
    <Dialog title={`New key of ${tenant}`} onClose={onClose} closable={stored}>
      <div className="stack">
        <p>This secret is shown once. Store it where the application reads it.</p>
        <p className="secret">
          <code data-testid="secret">{secret}</code>
          <CopyButton text={secret} label="Copy key" />
          <button type="button" onClick={() => saveEnv(tenant, secret, origin)}>
            Download .env
          </button>
        </p>
        {origin && (
          <>
            <p>Try it:</p>
            <Code
              text={snippets({ origin, model: "auto" })[0]!.text.replace("$OPENAI_API_KEY", secret)}
              label="First request with this key"
              copyLabel="Copy command"
            />
          </>
        )}
        <FirstUse of={id} />
        <label className="check">
          <input type="checkbox" checked={stored} onChange={(e) => setStored(e.target.checked)} /> I stored this key
        </label>
        <footer>
          <button type="button" className="primary" disabled={!stored} onClick={onClose}>
            Close
          </button>
        </footer>
      </div>
    </Dialog>
  );
}

/** FirstUse waits for the first request of a key. */
function FirstUse({ of: key }: { of: string }) {
  useTopic("decisions");
  const at = firstUseOf(key, useFeed().rows, useQuery(listQuery()).data?.items ?? []);
  return (
    <p role="status" className={at ? undefined : "muted"}>
      {at ? <Badge tone="ok">First request: {clock(at)}</Badge> : "Waiting for the first request of this key…"}
    </p>
  );
}

function saveEnv(tenant: string, secret: string, origin: string | undefined): void {
  const lines = [`OPENAI_API_KEY=${secret}`, ...(origin ? [`OPENAI_BASE_URL=${origin}/v1`] : [])];
  saveAs(`${tenant}.env`, `${lines.join("\n")}\n`, "text/plain");
}
