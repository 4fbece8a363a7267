import { PageTitle } from "../../shell/Shell";

export function OverviewPage() {
  return <PageTitle>Overview</PageTitle>;
}
