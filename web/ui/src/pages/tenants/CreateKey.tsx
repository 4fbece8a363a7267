import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, result } from "../../api/client";
import { Dialog } from "../../ui/Dialog";
import { Problem } from "../../ui/Panel";
import { ChangeButton, Field } from "../../ui/parts";
import type { OnIssued } from "./NewKey";
import { refresh } from "./queries";

/** CreateKey is a button with the dialog that creates a key. */
export function CreateKey({ tenant, onIssued }: { tenant: string; onIssued: OnIssued }) {
  const [open, setOpen] = useState(false);
  return (
    <div className="row">
      <ChangeButton onClick={() => setOpen(true)}>Create key</ChangeButton>
      {open && <CreateKeyDialog tenant={tenant} onIssued={onIssued} onClose={() => setOpen(false)} />}
    </div>
  );
}

/** The choices of a key's life, in days. */
const lives = [7, 30, 90, 365];

function CreateKeyDialog({ tenant, onIssued, onClose }: { tenant: string; onIssued: OnIssued; onClose: () => void }) {
  const [name, setName] = useState("");
  const [days, setDays] = useState("");
  const create = useMutation({
    // The answer has the secret, so the mutation does not return it: nothing may keep it.
    mutationFn: async () => {
      const expires_at = days ? new Date(Date.now() + Number(days) * 86_400_000).toISOString() : undefined;
      const body = { ...(name && { name }), ...(expires_at && { expires_at }) };
      const answer = await result(api.POST("/admin/tenants/{name}/keys", { params: { path: { name: tenant } }, body }));
      refresh();
      onClose();
      if (answer.secret) onIssued({ id: answer.key.id, secret: answer.secret });
    },
  });
  return (
    <Dialog title={`New key of ${tenant}`} onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          create.mutate();
        }}
      >
        <Field label="Name" hint="What uses the key; optional">
          <input autoFocus maxLength={100} value={name} onChange={(e) => setName(e.target.value)} />
        </Field>
        <Field label="Ends">
          <select value={days} onChange={(e) => setDays(e.target.value)}>
            <option value="">never</option>
            {lives.map((d) => (
              <option key={d} value={d}>
                in {d} days
              </option>
            ))}
          </select>
        </Field>
        {create.error && <Problem error={create.error} />}
        <footer>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className="primary" disabled={create.isPending}>
            Create
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
