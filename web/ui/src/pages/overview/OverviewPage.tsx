import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { overviewQuery } from "../../api/queries";
import { PageTitle } from "../../shell/Shell";
import { Empty, Panel } from "../../ui/Panel";
import { Attention } from "./Attention";
import { Checklist } from "./Checklist";
import { Gateway } from "./Gateway";
import { recentQuery } from "./queries";
import { RecentCharts } from "./RecentCharts";
import { Tiers } from "./Tiers";
import "./overview.css";

/** OverviewPage shows whether the gateway works, and what needs attention. */
export function OverviewPage() {
  const overview = useQuery(overviewQuery);
  const recent = useQuery(recentQuery);
  return (
    <>
      <PageTitle>Overview</PageTitle>
      <Panel query={overview} live rows={2}>
        {(o) => <Gateway overview={o} recent={recent.data} />}
      </Panel>
      {overview.data && <Checklist done={overview.data.checklist} />}
      <Panel title="Needs attention" query={overview} live rows={2}>
        {(o) => <Attention items={o.attention} />}
      </Panel>
      <Panel title="Tiers and pools" query={overview} live empty={(o) => o.tiers.length === 0 && <NoTiers />}>
        {(o) => <Tiers tiers={o.tiers} recent={recent.data} />}
      </Panel>
      <Panel title="Last 5 minutes" query={recent} actions={<Link to="/metrics">All metrics</Link>}>
        {(r) => <RecentCharts recent={r} />}
      </Panel>
    </>
  );
}

function NoTiers() {
  return (
    <Empty>
      <strong>No tiers.</strong> Add tiers with workers to the configuration, then <Link to="/config">reload it</Link>.
    </Empty>
  );
}
