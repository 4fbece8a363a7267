import { createHashHistory, createRootRoute, createRoute, createRouter } from "@tanstack/react-router";
import { parseSearch, picked, stringifySearch } from "./lib/search";
import { AuditPage } from "./pages/audit/AuditPage";
import { ClientsPage } from "./pages/clients/ClientsPage";
import { ConfigPage } from "./pages/config/ConfigPage";
import { DecisionsPage } from "./pages/decisions/DecisionsPage";
import { filterNames } from "./pages/decisions/filter";
import { LoginPage } from "./pages/LoginPage";
import { MetricsPage } from "./pages/metrics/MetricsPage";
import { OverviewPage } from "./pages/overview/OverviewPage";
import { RulesPage } from "./pages/rules/RulesPage";
import { TenantsPage } from "./pages/tenants/TenantsPage";
import { WorkersPage } from "./pages/workers/WorkersPage";
import { NotFound, Root, Shell } from "./shell/Shell";

const root = createRootRoute({ component: Root, notFoundComponent: NotFound });

const login = createRoute({
  getParentRoute: () => root,
  path: "/login",
  component: LoginPage,
  validateSearch: picked("code", "to"),
});

const shell = createRoute({ getParentRoute: () => root, id: "shell", component: Shell });

const overview = createRoute({ getParentRoute: () => shell, path: "/", component: OverviewPage });

const tenants = createRoute({
  getParentRoute: () => shell,
  path: "/tenants",
  component: TenantsPage,
  validateSearch: picked("q", "sort", "tenant", "tab", "state"),
});

const workers = createRoute({
  getParentRoute: () => shell,
  path: "/workers",
  component: WorkersPage,
  validateSearch: picked("q", "sort", "worker", "pool"),
});

const rules = createRoute({
  getParentRoute: () => shell,
  path: "/rules",
  component: RulesPage,
  validateSearch: picked("tab", "decision", "path", "model", "max_tokens", "tenant", "tier", "class", "headers"),
});

const decisions = createRoute({
  getParentRoute: () => shell,
  path: "/decisions",
  component: DecisionsPage,
  validateSearch: picked("id", ...filterNames),
});

const metrics = createRoute({
  getParentRoute: () => shell,
  path: "/metrics",
  component: MetricsPage,
  validateSearch: picked("range", "view"),
});

const config = createRoute({
  getParentRoute: () => shell,
  path: "/config",
  component: ConfigPage,
  validateSearch: picked("tab", "q"),
});

const audit = createRoute({
  getParentRoute: () => shell,
  path: "/audit",
  component: AuditPage,
  validateSearch: picked("actor", "action", "target", "since", "entry"),
});

const clients = createRoute({
  getParentRoute: () => shell,
  path: "/clients",
  component: ClientsPage,
  validateSearch: picked("client", "model"),
});

export const router = createRouter({
  routeTree: root.addChildren([
    login,
    shell.addChildren([overview, tenants, workers, rules, decisions, metrics, config, audit, clients]),
  ]),
  history: createHashHistory(),
  parseSearch,
  stringifySearch,
  defaultPreload: "intent",
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
