import { getRouteApi, Link } from "@tanstack/react-router";
import type { TenantView } from "../../api/schema";
import { Dialog } from "../../ui/Dialog";
import { Tabs } from "../../ui/Tabs";
import { Keys } from "./Keys";
import { LimitBars } from "./LimitBars";
import { TenantSettings } from "./TenantSettings";
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
        {current === "settings" && <TenantSettings key={tenant.name} tenant={tenant} onClose={onClose} />}
        {current === "keys" && <Keys key={tenant.name} tenant={tenant} />}
        {current === "usage" && <Usage name={tenant.name} />}
      </div>
    </Dialog>
  );
}
