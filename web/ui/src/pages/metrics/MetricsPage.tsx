import { PageTitle } from "../../shell/Shell";

export function MetricsPage() {
  return <PageTitle>Metrics</PageTitle>;
}
