import { PageTitle } from "../../shell/Shell";

export function RulesPage() {
  return <PageTitle>Rules</PageTitle>;
}
