import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { ConfigView, OriginView } from "../../api/schema";
import { Empty, Panel } from "../../ui/Panel";
import { configQuery } from "./queries";
import { filtered, treeOf, type Node } from "./tree";

const route = getRouteApi("/shell/config");

type Origins = Record<string, OriginView>;

/** Effective shows every value in force with its origin. */
export function Effective() {
  const config = useQuery(configQuery);
  const { q = "" } = route.useSearch();
  const navigate = route.useNavigate();
  const [set, setSet] = useState(false);
  return (
    <Panel
      title="Values in force"
      query={config}
      rows={12}
      actions={
        <>
          <label className="check">
            <input type="checkbox" checked={set} onChange={(e) => setSet(e.target.checked)} /> without defaults
          </label>
          <input
            type="search"
            placeholder="path or value"
            aria-label="Filter values"
            value={q}
            onChange={(e) => void navigate({ search: (s) => ({ ...s, q: e.target.value }), replace: true })}
          />
        </>
      }
    >
      {(c) => <Tree config={c} q={q} onlySet={set} />}
    </Panel>
  );
}

function Tree({ config, q, onlySet }: { config: ConfigView; q: string; onlySet: boolean }) {
  const all = useMemo(() => treeOf(config.effective), [config.effective]);
  const origins = config.origins as Origins;
  const shown = filtered(all, q, (n) => !onlySet || origins[n.path] !== undefined);
  if (shown.length === 0) {
    return (
      <Empty>
        <strong>No value matches.</strong> Change the filter.
      </Empty>
    );
  }
  return (
    <>
      <p className="muted body">
        The default tier and the thresholds of the classifier are on{" "}
        <Link to="/rules" search={{ tab: "rules" }}>
          Tiers and rules
        </Link>
        .
      </p>
      <ul className="tree">
        {shown.map((n) => (
          <Branch key={n.path} node={n} origins={origins} open={q !== "" || onlySet} />
        ))}
      </ul>
    </>
  );
}

function Branch({ node, origins, open }: { node: Node; origins: Origins; open: boolean }) {
  if (node.children.length === 0) {
    return (
      <li>
        <code className="name">{node.name}</code> <code className="value">{node.value}</code>
        <Origin origin={origins[node.path]} />
      </li>
    );
  }
  return (
    <li>
      <details open={open || undefined}>
        <summary>
          <code className="name">{node.name}</code> {node.label && <strong>{node.label}</strong>}
        </summary>
        <ul>
          {node.children.map((n) => (
            <Branch key={n.path} node={n} origins={origins} open={open} />
          ))}
        </ul>
      </details>
    </li>
  );
}

function Origin({ origin }: { origin: OriginView | undefined }) {
  if (!origin) return <small className="muted">default</small>;
  switch (origin.source) {
    case "override":
      return (
        <Link to="/config" search={{ tab: "overrides" }} className="chip info" title={origin.detail}>
          override by {origin.by}
        </Link>
      );
    case "file":
      return (
        <Link to="/config" search={{ tab: "file", q: String(origin.line ?? "") }} className="chip">
          file:{origin.line}
        </Link>
      );
    default:
      return (
        <span className="chip" title={origin.detail}>
          {origin.source} {origin.detail}
        </span>
      );
  }
}
