import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { statusQuery, tiersQuery } from "../../api/queries";
import type { StatusView, PageTierState } from "../../api/schema";
import { PageTitle } from "../../shell/Shell";
import { Panel } from "../../ui/Panel";
import { Code, Field } from "../../ui/parts";
import { Tabs } from "../../ui/Tabs";
import { dataOrigin, snippets } from "./snippets";

const route = getRouteApi("/shell/clients");

/** ClientsPage shows how applications connect to this gateway. */
export function ClientsPage() {
  const status = useQuery(statusQuery);
  return (
    <>
      <PageTitle note="An application changes its base URL and its key, and nothing else.">Client setup</PageTitle>
      <Panel query={status}>{(s) => <Setup status={s} />}</Panel>
    </>
  );
}

function Setup({ status }: { status: StatusView }) {
  const { client = "curl", model = "auto" } = route.useSearch();
  const navigate = route.useNavigate();
  const tiers = useQuery(tiersQuery);
  const [origin, setOrigin] = useState(() =>
    dataOrigin(status.listen.data.address, status.listen.data.tls, new URL(location.href)),
  );
  const all = snippets({ origin: origin.replace(/\/+$/, ""), model });
  const shown = all.find((s) => s.id === client) ?? all[0]!;
  return (
    <div className="body stack">
      <div className="fields">
        <Field label="Address of the gateway" hint="The address that applications use. If a proxy is in front of the gateway, enter the proxy's address.">
          <input value={origin} onChange={(e) => setOrigin(e.target.value)} spellCheck={false} />
        </Field>
        <Field label="Model" hint="auto lets the classifier select a tier.">
          <select
            value={model}
            onChange={(e) => void navigate({ search: (s) => ({ ...s, model: e.target.value }), replace: true })}
          >
            {modelNames(tiers.data, model).map((m) => (
              <option key={m}>{m}</option>
            ))}
          </select>
        </Field>
      </div>
      <p>
        {status.listen.auth_required ? (
          <>
            Each request needs a tenant&rsquo;s key. <Link to="/tenants">Create one under Tenants</Link>; its secret is shown
            once.
          </>
        ) : (
          "This gateway accepts requests without a key (auth.required: false)."
        )}
      </p>
      <Tabs
        label="Client"
        to="/clients"
        param="client"
        items={all.map((s) => ({ id: s.id, label: s.name }))}
        current={shown.id}
      />
      <div className="stack">
        <p className="muted mono">{shown.file}</p>
        <Code text={shown.text} label={`${shown.name} setup`} />
        {shown.note && <p className="muted">{shown.note}</p>}
      </div>
      <dl className="facts">
        <dt>
          <code>X-Model-Tier</code>
        </dt>
        <dd>selects a tier for one request</dd>
        <dt>
          <code>X-Request-Priority</code>
        </dt>
        <dd>interactive, background or batch; or the base URL /background/v1 or /batch/v1</dd>
        <dt>
          <code>X-Session-ID</code>
        </dt>
        <dd>keeps a chat on its tier and worker</dd>
      </dl>
    </div>
  );
}

/** modelNames returns auto, then the names that select a tier or pool. */
function modelNames(tiers: PageTierState | undefined, current: string): string[] {
  const names = (tiers?.items ?? []).flatMap((t) => [t.name, ...t.models]);
  return [...new Set(["auto", ...names, current])];
}
