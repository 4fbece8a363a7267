import { PageTitle } from "../../shell/Shell";

export function AuditPage() {
  return <PageTitle>Audit</PageTitle>;
}
