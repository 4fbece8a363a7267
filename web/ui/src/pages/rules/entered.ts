import { useSyncExternalStore } from "react";
import { emptyForm, type Form } from "./request";

/** Entered is the request and the draft of the page. Prompts may be confidential, so they are in memory only. */
export interface Entered {
  form: Form;
  /** undefined: the configuration in force only. */
  draft: string | undefined;
  /** Name of the admin key; another one does not see the texts. */
  owner: string;
  /** The link that was applied last, as JSON. */
  link: string;
}

export const nothingEntered: Entered = { form: emptyForm, draft: undefined, owner: "", link: "{}" };

let entered = nothingEntered;
const observers = new Set<() => void>();

/** enter changes the request or the draft. They stay until the tab is closed or reloaded. */
export function enter(change: Partial<Entered>): void {
  entered = { ...entered, ...change };
  for (const f of observers) f();
}

/** useEntered returns the request and the draft. */
export function useEntered(): Entered {
  return useSyncExternalStore(observe, () => entered);
}

function observe(f: () => void): () => void {
  observers.add(f);
  return () => observers.delete(f);
}

/** openPage applies the fields of a link to what was entered before. */
export function openPage(owner: string, link: Partial<Form>): void {
  entered = opened(entered, owner, link);
}

/** opened returns what a page begins with. A link sets its fields once; the texts, which no link has, stay. */
export function opened(before: Entered, owner: string, link: Partial<Form>): Entered {
  const kept = before.owner === owner ? before : { ...nothingEntered, owner };
  const text = JSON.stringify(link);
  if (text === "{}" || text === kept.link) return kept;
  const { system, prompt, body } = kept.form;
  return { ...kept, form: { ...emptyForm, system, prompt, body, ...link }, link: text };
}
