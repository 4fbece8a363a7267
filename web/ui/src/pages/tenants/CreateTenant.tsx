import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, ApiError, base, result } from "../../api/client";
import { adminCurl } from "../../lib/curl";
import { Dialog } from "../../ui/Dialog";
import { Problem } from "../../ui/Panel";
import { Curl, Field } from "../../ui/parts";
import { toast } from "../../ui/Toasts";
import { NewKey, type IssuedKey } from "./NewKey";
import { refresh } from "./queries";
import { emptyForm, errorsOf, newSettings } from "./settings";
import { SettingsForm } from "./SettingsForm";

/** CreateTenant creates a tenant with its first key. */
export function CreateTenant({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [form, setForm] = useState(emptyForm);
  const [issue, setIssue] = useState(true);
  const [issued, setIssued] = useState<IssuedKey>();
  const body = { name: name.trim(), issue_key: issue, ...newSettings(form) };
  const create = useMutation({
    // The answer has the secret, so the mutation does not return it: nothing may keep it.
    mutationFn: async () => {
      const answer = await result(api.POST("/admin/tenants", { body }));
      refresh();
      toast(`The tenant ${answer.tenant.name} was created.`);
      for (const w of answer.warnings ?? []) toast(w);
      if (answer.key && answer.secret) setIssued({ id: answer.key.id, secret: answer.secret });
      else onClose();
    },
  });
  if (issued) return <NewKey tenant={body.name} issued={issued} onClose={onClose} />;
  const wrong = name.trim() !== "" && !/^[a-z0-9-]{1,63}$/.test(name.trim());
  const shown = create.error instanceof ApiError && create.error.fields.length > 0 ? create.error : null;
  return (
    <Dialog title="Create a tenant" onClose={onClose} closable={!create.isPending}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (!wrong && Object.keys(errorsOf(form)).length === 0) create.mutate();
        }}
      >
        <Field
          label="Name"
          hint="1 to 63 of a-z, 0-9 and -. It cannot be changed later."
          error={wrong ? `Name: ${name.trim()} has other characters than a-z, 0-9 and -, or more than 63.` : shown?.field("name") ?? (create.error instanceof ApiError && create.error.status === 409 ? create.error.detail : undefined)}
        >
          <input required aria-invalid={wrong} autoFocus value={name} onChange={(e) => setName(e.target.value)} />
        </Field>
        <label className="check">
          <input type="checkbox" checked={issue} onChange={(e) => setIssue(e.target.checked)} /> Create its first key
        </label>
        <details open={Object.keys(form.limits).length > 0 || shown !== null || undefined}>
          <summary>Limits, permissions and behaviour</summary>
          <SettingsForm form={form} onChange={setForm} error={create.error} />
        </details>
        {create.error && <Problem error={create.error} />}
        <footer>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className="primary" disabled={create.isPending}>
            Create
          </button>
        </footer>
        <Curl text={adminCurl(base, "POST", "admin/tenants", body)} />
      </form>
    </Dialog>
  );
}
