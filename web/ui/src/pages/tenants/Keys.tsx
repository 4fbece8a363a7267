import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, base, result } from "../../api/client";
import type { KeyView, TenantView } from "../../api/schema";
import { adminCurl } from "../../lib/curl";
import { ago, clock, count, seconds } from "../../lib/format";
import { DataTable, type Column } from "../../ui/DataTable";
import { Confirm } from "../../ui/Dialog";
import { Empty, Problem } from "../../ui/Panel";
import { Badge, ChangeButton, Curl, Field, type Tone } from "../../ui/parts";
import { toast } from "../../ui/Toasts";
import { CreateKey } from "./CreateKey";
import { NewKey, type IssuedKey, type OnIssued } from "./NewKey";
import { keysQuery, pageSize, refresh } from "./queries";
import { rightsText } from "./settings";

/** Keys lists the keys of a tenant, creates, rotates and revokes them. */
export function Keys({ tenant }: { tenant: TenantView }) {
  const [issued, setIssued] = useState<IssuedKey>();
  const [q, setQ] = useState("");
  const columns = keyColumns(setIssued);
  // The tenant may have more keys than it lists: the server searches and counts them.
  const partial = tenant.key_list.length >= pageSize;
  const page = useQuery({ ...keysQuery(tenant.name, q.trim()), enabled: partial });
  const rows = (q.trim() && page.data?.items) || tenant.key_list;
  return (
    <div className="stack">
      {partial && (
        <>
          <input
            type="search"
            className="filter"
            placeholder="part of a name"
            aria-label="Search keys"
            value={q}
            onChange={(e) => setQ(e.target.value)}
          />
          {page.data && page.data.total > rows.length && (
            <p className="muted" role="status">
              {count(rows.length)} of {count(page.data.total)} keys: search a name to see others.
            </p>
          )}
          {page.error && <Problem error={page.error} />}
        </>
      )}
      {tenant.key_list.length === 0 ? (
        <Empty>
          <strong>No keys.</strong> Create one; its secret is shown once.
        </Empty>
      ) : (
        <DataTable label="Keys" columns={columns} rows={rows} rowKey={(k) => k.id} />
      )}
      <CreateKey tenant={tenant.name} onIssued={setIssued} />
      {issued && <NewKey tenant={tenant.name} issued={issued} onClose={() => setIssued(undefined)} />}
    </div>
  );
}

const tones: Record<string, Tone> = { active: "ok", grace: "warn", expired: "off", revoked: "off" };

function keyColumns(onIssued: OnIssued): Column<KeyView>[] {
  return [
    {
      id: "key",
      header: "Key",
      cell: (k) => (
        <>
          <code>{k.hint}</code> {k.name}
        </>
      ),
    },
    { id: "state", header: "State", cell: (k) => <Badge tone={tones[k.state] ?? "off"}>{k.state}</Badge> },
    {
      id: "rights",
      header: "Permissions",
      cell: (k) => <span className="clip">{k.tiers || k.models ? rightsText(k) : "as the tenant"}</span>,
    },
    { id: "used", header: "Last used", cell: (k) => (k.from_config ? "–" : ago(k.last_used_at)) },
    { id: "ends", header: "Ends", cell: (k) => (k.expires_at ? clock(k.expires_at) : "never") },
    { id: "actions", header: "", label: "Actions", cell: (k) => <KeyActions of={k} onIssued={onIssued} /> },
  ];
}

function KeyActions({ of: k, onIssued }: { of: KeyView; onIssued: OnIssued }) {
  const [asking, setAsking] = useState<"rotate" | "revoke">();
  if (k.from_config) return <small className="muted">config.yaml</small>;
  if (k.state === "revoked" || k.state === "expired") return null;
  return (
    <span className="row">
      <ChangeButton onClick={() => setAsking("rotate")}>Rotate</ChangeButton>
      <ChangeButton className="danger" onClick={() => setAsking("revoke")}>
        Revoke
      </ChangeButton>
      {asking === "rotate" && <Rotate of={k} onIssued={onIssued} onClose={() => setAsking(undefined)} />}
      {asking === "revoke" && <Revoke of={k} onClose={() => setAsking(undefined)} />}
    </span>
  );
}

/** The choices of the overlap of a rotation, in seconds; the API permits 7 days. */
const graces = [0, 300, 3600, 86_400, 3 * 86_400, 7 * 86_400];

function Rotate({ of: k, onIssued, onClose }: { of: KeyView; onIssued: OnIssued; onClose: () => void }) {
  const [choice, setChoice] = useState(3);
  const grace = graces[choice] ?? 0;
  const rotate = useMutation({
    // The answer has the secret, so the mutation does not return it: nothing may keep it.
    mutationFn: async () => {
      const request = { params: { path: { id: k.id } }, body: { grace_s: grace } };
      const answer = await result(api.POST("/admin/keys/{id}/rotate", request));
      refresh();
      onClose();
      if (answer.secret) onIssued({ id: answer.key.id, secret: answer.secret });
    },
  });
  return (
    <Confirm
      title={`Rotate ${k.hint}`}
      action="Create the new key"
      pending={rotate.isPending}
      onConfirm={() => rotate.mutate()}
      onClose={onClose}
    >
      <p>The key was last used {ago(k.last_used_at)}.</p>
      <Field
        label={grace === 0 ? "The old key stops working at once" : `The old key works for ${seconds(grace)} more`}
        hint={
          grace === 0
            ? "Applications that still use the old key are rejected."
            : "Both keys work until then. Replace the old key in all applications in this time."
        }
      >
        <input
          type="range"
          min={0}
          max={graces.length - 1}
          value={choice}
          aria-valuetext={grace === 0 ? "at once" : seconds(grace)}
          onChange={(e) => setChoice(Number(e.target.value))}
        />
      </Field>
      {rotate.error && <Problem error={rotate.error} />}
      <Curl text={adminCurl(base, "POST", `admin/keys/${k.id}/rotate`, { grace_s: grace })} />
    </Confirm>
  );
}

function Revoke({ of: k, onClose }: { of: KeyView; onClose: () => void }) {
  const revoke = useMutation({
    mutationFn: () => result(api.POST("/admin/keys/{id}/revoke", { params: { path: { id: k.id } }, body: {} })),
    onSuccess: () => {
      refresh();
      toast(`The key ${k.hint} was revoked.`);
      onClose();
    },
  });
  return (
    <Confirm
      title={`Revoke ${k.hint}?`}
      action="Revoke key"
      danger
      typed={k.tenant}
      pending={revoke.isPending}
      onConfirm={() => revoke.mutate()}
      onClose={onClose}
    >
      <p>Requests with this key are rejected at once, and permanently. It was last used {ago(k.last_used_at)}.</p>
      {revoke.error && <Problem error={revoke.error} />}
    </Confirm>
  );
}
