import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { base } from "../../api/client";
import { adminCurl } from "../../lib/curl";
import { Empty, Problem } from "../../ui/Panel";
import { Curl } from "../../ui/parts";
import { Answer } from "./Answer";
import { DraftEditor } from "./DraftEditor";
import { explain } from "./queries";
import { orderOf, type Form } from "./request";
import { RequestForm } from "./RequestForm";

interface PlaygroundProps {
  /** Id of a past request to explain instead of the form's. */
  decision: string | undefined;
  form: Form;
  onForm: (f: Form) => void;
  draft: string | undefined;
  onDraft: (d: string | undefined) => void;
}

/** Playground explains a request without sending it. */
export function Playground({ decision, form, onForm, draft, onDraft }: PlaygroundProps) {
  const [wrong, setWrong] = useState<Error>();
  const ask = useMutation({ mutationFn: explain });
  const run = () => {
    try {
      setWrong(undefined);
      ask.mutate(decision ? { decision, ...(draft !== undefined && { draft }) } : orderOf(form, draft));
    } catch (e) {
      setWrong(e as Error);
    }
  };
  const asked = useRef(false);
  useEffect(() => {
    if (!decision || asked.current) return;
    asked.current = true;
    run();
  });
  return (
    <div className="playground">
      <section className="panel" aria-label="Request">
        <form
          className="body stack padded"
          onSubmit={(e) => {
            e.preventDefault();
            run();
          }}
        >
          {decision ? (
            <p>
              The past request <code>{decision}</code>. <Link to="/rules">Explain another request</Link>
            </p>
          ) : (
            <RequestForm form={form} onChange={onForm} />
          )}
          <DraftEditor draft={draft} onChange={onDraft} />
          <div className="row">
            <button type="submit" className="primary" disabled={ask.isPending}>
              {draft === undefined ? "Explain" : "Explain and compare"}
            </button>
            {!decision && <ShareLink form={form} />}
          </div>
          {(wrong ?? ask.error) && <Problem error={wrong ?? ask.error} />}
          {ask.variables && <Curl text={adminCurl(base, "POST", "admin/route/explain", ask.variables)} />}
        </form>
      </section>
      <section className="panel" aria-label="Explanation" aria-live="polite">
        {ask.data ? (
          <Answer of={ask.data} />
        ) : (
          <Empty>
            <strong>No explanation yet.</strong> Write a prompt, or paste a JSON body or a curl command, then press Explain. The
            gateway decides as for a real request, and sends nothing.
          </Empty>
        )}
      </section>
    </div>
  );
}

/** ShareLink is a link with everything but the prompt, which may be confidential. */
function ShareLink({ form }: { form: Form }) {
  const search = { tenant: form.tenant, tier: form.tier, class: form.class, max_tokens: form.max_tokens };
  return (
    <Link to="/rules" search={search} className="button">
      Link without the prompt
    </Link>
  );
}
