import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, base, result } from "../../api/client";
import { useMayChange } from "../../api/queries";
import type { Tenant, TenantView } from "../../api/schema";
import { adminCurl } from "../../lib/curl";
import { Confirm } from "../../ui/Dialog";
import { Problem } from "../../ui/Panel";
import { ChangeButton, Curl } from "../../ui/parts";
import { toast } from "../../ui/Toasts";
import { PurgeAnswers } from "./PurgeAnswers";
import { refresh } from "./queries";
import { errorsOf, formOf, patchOf } from "./settings";
import { SettingsForm } from "./SettingsForm";

/** TenantSettings edits the limits and rights of a tenant, and deletes it. */
export function TenantSettings({ tenant, onClose }: { tenant: TenantView; onClose: () => void }) {
  const may = useMayChange();
  const { form, setForm, patch, changed, overtaken, load, discard, save } = useSettingsEdit(tenant);
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
        <PurgeAnswers tenant={tenant.name} />
        <span className="grow" />
        <button type="button" disabled={!changed} onClick={discard}>
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

/** useSettingsEdit returns the edit of a tenant's settings, which begins with a version of them. */
function useSettingsEdit(tenant: TenantView) {
  const [{ before, version }, setLoaded] = useState(() => loadedOf(tenant));
  const [form, setForm] = useState(before);
  const patch = patchOf(before, form);
  const changed = Object.keys(patch).length > 0;
  const load = (t: Tenant) => {
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
  return { form, setForm, patch, changed, overtaken, load, discard: () => setForm(before), save };
}

/** loadedOf returns the settings that an edit begins with, and their version. */
function loadedOf(t: Tenant) {
  return { before: formOf(t), version: t.version };
}

function Delete({ tenant, onDeleted }: { tenant: TenantView; onDeleted: () => void }) {
  const [asking, setAsking] = useState(false);
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
      <ChangeButton className="danger" disabled={tenant.from_config} onClick={() => setAsking(true)}>
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
          onClose={() => setAsking(false)}
        >
          <p>Its keys stop working at once. Its recorded usage stays.</p>
          {remove.error && <Problem error={remove.error} />}
        </Confirm>
      )}
    </>
  );
}
