import { PageTitle } from "../../shell/Shell";

export function TenantsPage() {
  return <PageTitle>Tenants</PageTitle>;
}
