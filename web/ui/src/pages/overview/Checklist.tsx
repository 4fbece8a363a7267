import { Link } from "@tanstack/react-router";
import { useQuery } from "@tanstack/react-query";
import { statusQuery } from "../../api/queries";
import type { OverviewView } from "../../api/schema";
import { Code } from "../../ui/parts";
import { dataOrigin, snippets } from "../clients/snippets";

/** Checklist leads through the first use of a gateway, and disappears when all steps are done. */
export function Checklist({ done }: { done: OverviewView["checklist"] }) {
  const status = useQuery(statusQuery);
  if (done.workers && done.tenants && done.requests) return null;
  const listen = status.data?.listen.data;
  const origin = listen ? dataOrigin(listen.address, listen.tls, new URL(location.href)) : "http://127.0.0.1:8080";
  const curl = snippets({ origin, model: "auto" })[0]!.text;
  return (
    <section className="panel" aria-labelledby="first-steps">
      <header>
        <h2 id="first-steps">First steps</h2>
      </header>
      <ol className="steps">
        <Step done={done.workers} title="A worker is up">
          Add a worker to a tier of the configuration, then <Link to="/config">reload it</Link>.
        </Step>
        <Step done={done.tenants} title="A tenant exists">
          <Link to="/tenants" search={{ tab: "create" }}>
            Create a tenant
          </Link>{" "}
          with its first key.
        </Step>
        <Step done={done.requests} title="A request was answered">
          Send one with the key in <code>OPENAI_API_KEY</code>:
          <Code text={curl} label="First request" />
        </Step>
      </ol>
    </section>
  );
}

function Step({ done, title, children }: { done: boolean; title: string; children: React.ReactNode }) {
  return (
    <li className={done ? "done" : undefined}>
      <span className="tick" role="img" aria-label={done ? "Done" : "Open"}>
        {done ? "✓" : "○"}
      </span>
      <div>
        <strong>{title}</strong>
        {!done && <div>{children}</div>}
      </div>
    </li>
  );
}
