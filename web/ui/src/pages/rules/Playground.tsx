import { useMutation } from "@tanstack/react-query";
import { Link, useRouter } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { base } from "../../api/client";
import type { RouteExplanation } from "../../api/schema";
import { adminCurl } from "../../lib/curl";
import { Empty, Problem } from "../../ui/Panel";
import { CopyButton, Curl } from "../../ui/parts";
import { Answer } from "./Answer";
import { DraftEditor } from "./DraftEditor";
import { problemsOf } from "./problems";
import { explain } from "./queries";
import { emptyForm, orderOf, shared, type Form } from "./request";
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
  const [answer, setAnswer] = useState<RouteExplanation>(); // stays while the next one is computed
  const ask = useMutation({ mutationFn: explain, onSuccess: setAnswer });
  const run = () => {
    try {
      setWrong(undefined);
      ask.mutate(decision ? { decision, ...(draft !== undefined && { draft }) } : orderOf(form, draft));
    } catch (e) {
      setWrong(e as Error);
    }
  };
  const error = wrong ?? ask.error;
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
          <DraftEditor draft={draft} onChange={onDraft} error={ask.error} />
          <div className="row">
            <button type="submit" className="primary" disabled={ask.isPending}>
              {draft === undefined ? "Explain" : "Explain and compare"}
            </button>
            {!decision && <ShareLink form={form} />}
          </div>
          {error !== null && !problemsOf(error) && <Problem error={error} />}
          {ask.variables && <Curl text={adminCurl(base, "POST", "admin/route/explain", ask.variables)} />}
        </form>
      </section>
      <section className="panel" aria-label="Explanation" aria-live="polite">
        <Result answer={answer} stale={ask.isPending || error !== null} />
      </section>
    </div>
  );
}

/** Result is the last explanation; stale dims it while it is not that of the form. */
function Result({ answer, stale }: { answer: RouteExplanation | undefined; stale: boolean }) {
  if (answer) {
    return (
      <div className={stale ? "stale" : undefined}>
        <Answer of={answer} />
      </div>
    );
  }
  return (
    <Empty>
      <strong>No explanation yet.</strong> Write a prompt, or paste a JSON body or a curl command, then press Explain. The
      gateway decides as for a real request, and sends nothing.
    </Empty>
  );
}

/** ShareLink copies a link with everything but the prompt, which may be confidential. */
function ShareLink({ form }: { form: Form }) {
  const router = useRouter();
  const search = Object.fromEntries(shared.map((name) => [name, form[name] === emptyForm[name] ? "" : form[name]]));
  const { href } = router.buildLocation({ to: "/rules", search: search as never });
  return (
    <span title="The link has every field but the prompt, the system prompt and the body.">
      <CopyButton text={`${base}#${href}`} label="Copy link without the prompt" />
    </span>
  );
}
