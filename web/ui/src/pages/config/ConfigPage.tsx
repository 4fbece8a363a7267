import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import type { ConfigView } from "../../api/schema";
import { clock, plural } from "../../lib/format";
import { PageTitle } from "../../shell/Shell";
import { Tabs } from "../../ui/Tabs";
import { Effective } from "./Effective";
import { FileText } from "./FileText";
import { Overrides } from "./Overrides";
import { configQuery, previewQuery } from "./queries";
import { Reload } from "./Reload";
import { Validate } from "./Validate";
import "./config.css";

const route = getRouteApi("/shell/config");

const tabs = [
  { id: "effective", label: "In force" },
  { id: "file", label: "File" },
  { id: "overrides", label: "Overrides" },
  { id: "validate", label: "Validate" },
  { id: "reload", label: "Reload" },
] as const;

/** ConfigPage shows the configuration in force, and reloads it. The page never writes the file. */
export function ConfigPage() {
  const { tab } = route.useSearch();
  const current = tabs.find((t) => t.id === tab)?.id ?? "effective";
  const config = useQuery(configQuery);
  return (
    <>
      <PageTitle note={config.data && <Loaded config={config.data} />}>Config</PageTitle>
      {config.data && config.data.restart_needed.length > 0 && (
        <p className="note warn" role="status">
          The file on disk has values that take effect after a restart: {config.data.restart_needed.join(", ")}.
        </p>
      )}
      {current !== "reload" && config.data?.path && <Pending />}
      <Tabs label="Parts of the configuration" to="/config" param="tab" items={tabs} current={current} />
      {current === "effective" && <Effective />}
      {current === "file" && <FileText />}
      {current === "overrides" && <Overrides />}
      {current === "validate" && <Validate />}
      {current === "reload" && <Reload />}
    </>
  );
}

/** Pending says that the file on disk differs from the configuration in force. */
function Pending() {
  const n = useQuery(previewQuery).data?.changes.length ?? 0;
  if (n === 0) return null;
  return (
    <p className="note warn" role="status">
      {plural(n, "change")} in the file {n === 1 ? "is" : "are"} not in force.{" "}
      <Link to="/config" search={{ tab: "reload" }}>
        Review and reload
      </Link>
    </p>
  );
}

function Loaded({ config }: { config: ConfigView }) {
  if (!config.path) return <>This gateway was started without a configuration file.</>;
  return (
    <>
      {config.path}, loaded {clock(config.loaded_at)}, generation {config.generation}.
    </>
  );
}
