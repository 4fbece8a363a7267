import { PageTitle } from "../../shell/Shell";

export function ConfigPage() {
  return <PageTitle>Config</PageTitle>;
}
