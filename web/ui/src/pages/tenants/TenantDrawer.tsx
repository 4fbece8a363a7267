import { useMutation } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, base, result } from "../../api/client";
import { useMayChange } from "../../api/queries";
import type { TenantView } from "../../api/schema";
import { adminCurl } from "../../lib/curl";
import { Confirm, Dialog } from "../../ui/Dialog";
import { Problem } from "../../ui/Panel";
import { ChangeButton, Curl } from "../../ui/parts";
import { Tabs } from "../../ui/Tabs";
import { toast } from "../../ui/Toasts";
import { Keys } from "./Keys";
import { LimitBars } from "./LimitBars";
import { refresh } from "./queries";
import { errorsOf, formOf, patchOf } from "./settings";
import { SettingsForm } from "./SettingsForm";
import { Usage } from "./Usage";

const route = getRouteApi("/shell/tenants");

const tabs = [
  { id: "settings", label: "Settings" },
  { id: "keys", label: "Keys" },
  { id: "usage", label: "Usage" },
] as const;

/** TenantDrawer shows one tenant: its settings, keys and usage. */
export function TenantDrawer({ tenant, onClose }: { tenant: TenantView; onClose: () => void }) {
  const { tab } = route.useSearch();
  const current = tabs.find((t) => t.id === tab)?.id ?? "settings";
  return (
    <Dialog title={tenant.name} drawer onClose={onClose}>
      <div className="stack">
        <div className="row">
          <LimitBars now={tenant.now} all />
          <span className="grow" />
          <Link to="/decisions" search={{ tenant: tenant.name }}>
            Its decisions
          </Link>
        </div>
        <Tabs label="Parts of the tenant" to="/tenants" param="tab" items={tabs} current={current} />
        {current === "settings" && <Settings key={tenant.name} tenant={tenant} onClose={onClose} />}
        {current === "keys" && <Keys tenant={tenant} />}
        {current === "usage" && <Usage name={tenant.name} />}
      </div>
    </Dialog>
  );
}

function Settings({ tenant, onClose }: { tenant: TenantView; onClose: () => void }) {
  const may = useMayChange();
  const [{ before, version }, setLoaded] = useState(() => loadedOf(tenant));
  const [form, setForm] = useState(before);
  const patch = patchOf(before, form);
  const changed = Object.keys(patch).length > 0;
  const load = (t: TenantView) => {
    setLoaded(loadedOf(t));
    setForm(formOf(t));
  };
  const overtaken = tenant.version > version;
  if (overtaken && !changed) load(tenant);
  const save = useMutation({
    mutationFn: () =>
      result(
        api.PATCH("/admin/tenants/{name}", {
          params: { path: { name: tenant.name }, header: { "If-Match": `"v${version}"` } },
          body: patch,
        }),
      ),
    onSuccess: (answer) => {
      load(answer.tenant);
      refresh();
      toast(`The settings of ${tenant.name} were saved.`);
      for (const w of answer.warnings ?? []) toast(w);
    },
  });
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        if (Object.keys(errorsOf(form)).length === 0) save.mutate();
      }}
    >
      {tenant.from_config && <p className="note">Defined in config.yaml. Edit that file and reload to change it.</p>}
      <SettingsForm form={form} onChange={setForm} error={save.error} disabled={!may || tenant.from_config} />
      {overtaken && changed && (
        <p className="note warn" role="status">
          Another admin changed this tenant.{" "}
          <button type="button" onClick={() => load(tenant)}>
            Discard my edits and load the change
          </button>
        </p>
      )}
      {save.error && <Problem error={save.error} />}
      <footer>
        <Delete tenant={tenant} onDeleted={onClose} />
        <span className="grow" />
        <button type="button" disabled={!changed} onClick={() => setForm(before)}>
          Discard
        </button>
        <ChangeButton type="submit" className="primary" disabled={!changed || save.isPending || tenant.from_config}>
          Save
        </ChangeButton>
      </footer>
      {changed && <Curl text={adminCurl(base, "PATCH", `admin/tenants/${tenant.name}`, patch)} />}
    </form>
  );
}

/** loadedOf returns the settings that an edit begins with, and their version. */
function loadedOf(t: TenantView) {
  return { before: formOf(t), version: t.version };
}

function Delete({ tenant, onDeleted }: { tenant: TenantView; onDeleted: () => void }) {
  const [asking, ask] = useState(false);
  const remove = useMutation({
    mutationFn: () => result(api.DELETE("/admin/tenants/{name}", { params: { path: { name: tenant.name }, query: { confirm: tenant.name } } })),
    onSuccess: () => {
      refresh();
      toast(`The tenant ${tenant.name} and its keys were deleted.`);
      onDeleted();
    },
  });
  return (
    <>
      <ChangeButton className="danger" disabled={tenant.from_config} onClick={() => ask(true)}>
        Delete tenant
      </ChangeButton>
      {asking && (
        <Confirm
          title={`Delete ${tenant.name}?`}
          action="Delete tenant"
          danger
          typed={tenant.name}
          pending={remove.isPending}
          onConfirm={() => remove.mutate()}
          onClose={() => ask(false)}
        >
          <p>Its keys stop working at once. Its recorded usage stays.</p>
          {remove.error && <Problem error={remove.error} />}
        </Confirm>
      )}
    </>
  );
}
