import { PageTitle } from "../../shell/Shell";

export function ClientsPage() {
  return <PageTitle>Clients</PageTitle>;
}
