import { useMutation } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { api, result } from "../api/client";
import { queries } from "../api/queries";
import { CopyButton, Field } from "../ui/parts";
import { Problem } from "../ui/Panel";

const bootstrapPrefix = "tw-boot-";

/** LoginPage opens a session with an admin key, a one-time code, or the bootstrap secret. */
export function LoginPage() {
  const { code, to } = useSearch({ from: "/login" });
  const navigate = useNavigate();
  const [firstKey, setFirstKey] = useState("");
  const login = useMutation({
    mutationFn: (body: { key: string } | { code: string }) => result(api.POST("/admin/session", { body })),
    onSuccess: (session) => {
      queries.clear();
      queries.setQueryData(["session"], session);
      if (to) location.hash = `#${to}`;
      else void navigate({ to: "/", replace: true });
    },
  });
  const tried = useRef(false);
  const mutate = login.mutate;
  useEffect(() => {
    if (!code || tried.current) return; // a code works once, and effects may run twice
    tried.current = true;
    mutate({ code });
  }, [code, mutate]);
  if (firstKey) return <FirstKey secret={firstKey} pending={login.isPending} onDone={() => login.mutate({ key: firstKey })} />;
  return (
    <main className="login">
      <h1>
        <img src="./favicon.svg" alt="" width="32" height="32" /> Tierway
      </h1>
      <KeyForm pending={login.isPending} error={login.error} onKey={(key) => login.mutate({ key })} onFirstKey={setFirstKey} />
    </main>
  );
}

interface KeyFormProps {
  pending: boolean;
  error: Error | null;
  onKey: (key: string) => void;
  /** Called with the key of the first admin. */
  onFirstKey: (secret: string) => void;
}

/** KeyForm takes an admin key, or the bootstrap secret and the name of the first admin. */
function KeyForm({ pending, error, onKey, onFirstKey }: KeyFormProps) {
  const [key, setKey] = useState("");
  const [name, setName] = useState("");
  const bootstrap = useMutation({
    mutationFn: () => result(api.POST("/admin/bootstrap", { body: { secret: key.trim(), name } })),
    onSuccess: (answer) => onFirstKey(answer.secret),
  });
  const first = key.trim().startsWith(bootstrapPrefix);
  const problem = error ?? bootstrap.error;
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        if (first) bootstrap.mutate();
        else onKey(key.trim());
      }}
    >
      <Field
        label="Admin key"
        hint="A key tw-adm-… from admin.keys in config.yaml or from `tierway keys create --admin`. For the first admin, enter the secret tw-boot-… that the gateway prints at its start."
      >
        <input
          type="password"
          autoComplete="current-password"
          required
          autoFocus
          value={key}
          onChange={(e) => setKey(e.target.value)}
        />
      </Field>
      {first && (
        <Field label="Your name" hint="It appears in the audit log.">
          <input required pattern="[A-Za-z0-9][A-Za-z0-9._@-]{0,62}" value={name} onChange={(e) => setName(e.target.value)} />
        </Field>
      )}
      <button type="submit" className="primary" disabled={pending || bootstrap.isPending}>
        {first ? "Create the first admin key" : "Log in"}
      </button>
      {problem && <Problem error={problem} />}
    </form>
  );
}

function FirstKey({ secret, pending, onDone }: { secret: string; pending: boolean; onDone: () => void }) {
  const [stored, setStored] = useState(false);
  return (
    <main className="login">
      <h1>Your admin key</h1>
      <p>This key is shown once. Store it in your password manager before you continue.</p>
      <p className="secret">
        <code>{secret}</code> <CopyButton text={secret} />
      </p>
      <label className="check">
        <input type="checkbox" checked={stored} onChange={(e) => setStored(e.target.checked)} /> I stored this key
      </label>
      <button type="button" className="primary" disabled={!stored || pending} onClick={onDone}>
        Continue
      </button>
    </main>
  );
}
