import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { statusQuery, tiersQuery } from "../../api/queries";
import { CopyButton, Field } from "../../ui/parts";
import { dataOrigin } from "../clients/snippets";
import { classes } from "../tenants/settings";
import { curlOf, parsePasted, paths, type Form } from "./request";
import { TenantField } from "./TenantField";

/** RequestForm edits the request of the playground. */
export function RequestForm({ form, onChange }: { form: Form; onChange: (f: Form) => void }) {
  const set = (change: Partial<Form>) => onChange({ ...form, ...change });
  return (
    <>
      <Paste onPasted={(f) => set({ body: "", ...f })} />
      {form.body ? (
        <Field label="Body" hint="JSON as the client sends it">
          <textarea rows={12} spellCheck={false} value={form.body} onChange={(e) => set({ body: e.target.value })} />
        </Field>
      ) : (
        <Prompt form={form} set={set} />
      )}
      <Caller form={form} set={set} />
      <CopyCurl form={form} />
    </>
  );
}

interface PartProps {
  form: Form;
  set: (change: Partial<Form>) => void;
}

function Prompt({ form, set }: PartProps) {
  return (
    <>
      <Field label="Prompt" hint="The last turn of the user">
        <textarea rows={5} value={form.prompt} onChange={(e) => set({ prompt: e.target.value })} />
      </Field>
      <details open={form.system !== "" || undefined}>
        <summary>System prompt</summary>
        <textarea rows={3} aria-label="System prompt" value={form.system} onChange={(e) => set({ system: e.target.value })} />
      </details>
      <div className="fields">
        <Field label="Model" hint="auto lets the classifier decide">
          <input value={form.model} onChange={(e) => set({ model: e.target.value })} spellCheck={false} />
        </Field>
        <Field label="max_tokens">
          <input inputMode="numeric" value={form.max_tokens} onChange={(e) => set({ max_tokens: e.target.value })} />
        </Field>
      </div>
    </>
  );
}

function Caller({ form, set }: PartProps) {
  const tiers = useQuery(tiersQuery).data?.items ?? [];
  return (
    <>
      <div className="fields">
        <TenantField none="without limits" value={form.tenant} onChange={(tenant) => set({ tenant })} />
        <Field label="X-Model-Tier">
          <select value={form.tier} onChange={(e) => set({ tier: e.target.value })}>
            <option value="">absent</option>
            {tiers
              .filter((t) => t.tier)
              .map((t) => (
                <option key={t.name}>{t.name}</option>
              ))}
          </select>
        </Field>
        <Field label="Class">
          <select value={form.class} onChange={(e) => set({ class: e.target.value })}>
            <option value="">default</option>
            {classes.map((c) => (
              <option key={c}>{c}</option>
            ))}
          </select>
        </Field>
        <Field label="Endpoint">
          <select value={form.path} onChange={(e) => set({ path: e.target.value })}>
            {[...new Set([...paths, form.path])].map((p) => (
              <option key={p}>{p}</option>
            ))}
          </select>
        </Field>
      </div>
      <details open={form.headers !== "" || undefined}>
        <summary>Further headers</summary>
        <textarea
          rows={2}
          aria-label="Further headers"
          placeholder="X-Session-ID: chat-1"
          spellCheck={false}
          value={form.headers}
          onChange={(e) => set({ headers: e.target.value })}
        />
      </details>
    </>
  );
}

function Paste({ onPasted }: { onPasted: (f: Partial<Form>) => void }) {
  const [text, setText] = useState("");
  const [message, setMessage] = useState("");
  const read = (pasted: string) => {
    setText(pasted);
    if (!pasted.trim()) return setMessage("");
    try {
      const { form, notes } = parsePasted(pasted);
      onPasted(form);
      setText("");
      setMessage(["The request was read.", ...notes].join(" "));
    } catch (e) {
      setMessage((e as Error).message);
    }
  };
  return (
    <details>
      <summary>Paste a JSON body or a curl command</summary>
      <textarea rows={3} aria-label="JSON body or curl command" spellCheck={false} value={text} onChange={(e) => read(e.target.value)} />
      <p role="status" className="small">
        {message}
      </p>
    </details>
  );
}

function CopyCurl({ form }: { form: Form }) {
  const listen = useQuery(statusQuery).data?.listen.data;
  if (!listen) return null;
  try {
    const text = curlOf(form, dataOrigin(listen.address, listen.tls, new URL(location.href)));
    return (
      <p className="small muted">
        <CopyButton text={text} label="Copy as curl" /> sends this request for real, with a tenant&rsquo;s key.
      </p>
    );
  } catch {
    return null; // the form says what is wrong when it is sent
  }
}
