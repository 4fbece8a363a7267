import { useEffect, useRef } from "react";
import type { Choice, Excluded, Explanation, RouteExplanation } from "../../api/schema";
import { plural } from "../../lib/format";
import { reasonText, rejectionText, ruleText } from "../../lib/reasons";
import { Badge, type Tone } from "../../ui/parts";
import { Candidates } from "./Candidates";
import { DraftReview } from "./DraftReview";
import { HandoverView } from "./HandoverView";
import { Signals } from "./Signals";
import { Steps } from "./Steps";

/** Answer shows an explanation, beside that under a draft if there is one. A new one is scrolled into view. */
export function Answer({ of: live }: { of: RouteExplanation }) {
  const top = useRef<HTMLDivElement>(null);
  useEffect(() => {
    top.current?.scrollIntoView({ block: "nearest" }); // newer browsers return a promise, which is no cleanup
  }, [live]);
  return (
    <div>
      <div ref={top} className="answer-top" />
      {live.draft ? <Comparison of={live} draft={live.draft} /> : <One of={live} />}
    </div>
  );
}

function Comparison({ of: live, draft }: { of: RouteExplanation; draft: Explanation }) {
  const changed = live.changed ?? [];
  return (
    <>
      <div className="stack body padded">
        <p role="status">
          <strong>
            {changed.length === 0
              ? "The edited configuration gives the same outcome, tier and worker."
              : `The edited configuration changes ${changed.join(", ")}.`}
          </strong>
        </p>
        <DraftReview of={live} />
      </div>
      <div className="compare">
        <section aria-label="In force">
          <h2>In force</h2>
          <One of={live} />
        </section>
        <section aria-label="Edited">
          <h2>Edited</h2>
          <One of={draft} />
        </section>
      </div>
    </>
  );
}

function One({ of: e }: { of: Explanation }) {
  const choice = choiceOf(e);
  return (
    <div className="stack body padded">
      <Verdict of={e} />
      {e.error && <p className="note err">{e.error}</p>}
      {notesOf(e).map((n) => (
        <p key={n} className="note">
          {n}
        </p>
      ))}
      <Steps steps={e.steps ?? []} />
      {e.classified && <Signals of={e.classified} />}
      {(e.candidates ?? []).length > 0 && (
        <Candidates of={{ candidates: e.candidates, worker: e.worker, policy: choice?.policy ?? e.policy, reason: e.reason }} others={othersOf(e)} />
      )}
      {e.handover && <HandoverView of={e.handover} />}
      <p className="muted small">
        About {plural(e.prompt_tokens_estimate, "prompt token")}, {plural(e.blocks, "block")}. No side effects.
      </p>
    </div>
  );
}

const outcomes: Record<Explanation["outcome"], { tone: Tone; text: string }> = {
  route: { tone: "ok", text: "routed" },
  queue: { tone: "warn", text: "queued" },
  reject: { tone: "err", text: "rejected" },
  answer: { tone: "ok", text: "answered" },
  abandoned: { tone: "off", text: "client left" },
  unknown: { tone: "off", text: "unknown" },
};

function Verdict({ of: e }: { of: Explanation }) {
  const uses = (e.steps ?? []).flatMap((s) => s.limits ?? []);
  const reasons = reasonsOf(e);
  const why = e.outcome === "reject" ? rejectionText({ ...e, outcome: "refused", uses }) : undefined;
  return (
    <>
      <p className="verdict">
        <Badge tone={outcomes[e.outcome].tone}>{outcomes[e.outcome].text}</Badge>
        {e.tier && <strong>{e.tier}</strong>}
        {e.worker && (
          <>
            → <strong data-testid="worker">{e.worker}</strong>
          </>
        )}
        {e.status && <code>{e.status}</code>}
        {e.code && <code>{e.code}</code>}
      </p>
      {why && (
        <p>
          <strong>{why}</strong>
        </p>
      )}
      <p>{e.summary}</p>
      {reasons && <p className="small muted">{reasons}</p>}
    </>
  );
}

/** reasonsOf returns the reasons for the tier and the worker in words. */
function reasonsOf(e: Explanation): string {
  const tier = e.tier && e.rule && `${e.tier}: ${ruleText(e.rule)}.`;
  const worker = e.worker && e.reason && `${e.worker}: ${reasonText("worker", e.reason)}.`;
  return [tier, worker].filter(Boolean).join(" ");
}

/** choiceOf returns the last selection of a worker. Its policy can be a fallback of the tier's policy. */
function choiceOf(e: Explanation): Choice | undefined {
  return (e.steps ?? []).findLast((s) => s.worker?.choice)?.worker?.choice;
}

/** othersOf returns the workers that were no candidates. */
function othersOf(e: Explanation): Excluded[] {
  return (e.steps ?? []).flatMap((s) => s.worker?.others ?? []);
}

/** notesOf returns the notes that no step repeats. */
function notesOf(e: Explanation): string[] {
  const said = new Set((e.steps ?? []).map((s) => s.detail));
  return [...(e.notes ?? []), ...(e.note ? [e.note] : [])].filter((n) => !said.has(n));
}
