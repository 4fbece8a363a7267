import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { useSession } from "../../api/queries";
import { PageTitle } from "../../shell/Shell";
import { Tabs } from "../../ui/Tabs";
import { enter, openPage, useEntered } from "./entered";
import { Playground } from "./Playground";
import { Replay } from "./Replay";
import { shared, type Form } from "./request";
import { Rules } from "./Rules";
import { TierList } from "./TierList";
import { TierReport } from "./TierReport";
import "./rules.css";

const route = getRouteApi("/shell/rules");

const tabs = [
  { id: "playground", label: "Playground" },
  { id: "rules", label: "Rules" },
  { id: "tiers", label: "Tiers" },
  { id: "report", label: "Report" },
  { id: "replay", label: "Replay" },
] as const;

/** RulesPage explains which tier and worker a request gets, now and under an edited configuration. */
export function RulesPage() {
  const search = route.useSearch();
  const current = tabs.find((t) => t.id === search.tab)?.id ?? "playground";
  const owner = useSession()?.name ?? "";
  useState(() => openPage(owner, linkOf(search))); // before the first use of what was entered
  const { form, draft } = useEntered();
  const setDraft = (d: string | undefined) => enter({ draft: d });
  return (
    <>
      <PageTitle note="Which tier and worker a request gets, and why. Nothing on this page is sent to a worker.">
        Tiers and rules
      </PageTitle>
      <Tabs label="Parts of the page" to="/rules" param="tab" items={tabs} current={current} />
      {current === "playground" && (
        <Playground key={search.decision} decision={search.decision} form={form} onForm={(f) => enter({ form: f })} draft={draft} onDraft={setDraft} />
      )}
      {current === "rules" && <Rules />}
      {current === "tiers" && <TierList />}
      {current === "report" && <TierReport />}
      {current === "replay" && <Replay draft={draft} onDraft={setDraft} />}
    </>
  );
}

/** linkOf returns the fields of a request in the address. */
function linkOf(search: Partial<Form>): Partial<Form> {
  return Object.fromEntries(shared.filter((name) => search[name]).map((name) => [name, search[name]]));
}
