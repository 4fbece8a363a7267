import { PageTitle } from "../../shell/Shell";

export function WorkersPage() {
  return <PageTitle>Workers</PageTitle>;
}
