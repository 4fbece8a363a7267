import { PageTitle } from "../../shell/Shell";

export function DecisionsPage() {
  return <PageTitle>Decisions</PageTitle>;
}
