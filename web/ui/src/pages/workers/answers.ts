import type { WorkerAnswer, WorkerState } from "../../api/schema";

/** An event that was encoded before a change may arrive about a second after the answer to it. */
const holdFor = 3000;

/** Answer is the answer to a change. before: version of the override that the change replaced. */
export interface Answer extends Pick<WorkerAnswer, "worker" | "expected"> {
  before: number;
  at: number;
}

/** recentAnswers returns the answers that may be newer than the live data. */
export function recentAnswers(answers: Answer[], now: number): Answer[] {
  return answers.filter((a) => now - a.at < holdFor);
}

/**
 * withAnswers returns the workers with the changes that the live data does not have yet, so that a control does not
 * go back for a moment. Workers with another version than a change replaced stay as they are.
 */
export function withAnswers(workers: WorkerState[], answers: Answer[], now: number): WorkerState[] {
  return recentAnswers(answers, now).reduce(withAnswer, workers);
}

function withAnswer(workers: WorkerState[], { worker, expected, before }: Answer): WorkerState[] {
  const stale = workers.some((w) => w.name === worker.name && w.weights.version === before);
  if (!stale) return workers;
  return workers.map((w) => {
    const share = expected[w.name];
    const distribution = share === undefined ? w.distribution : { ...w.distribution, expected: share };
    if (w.name !== worker.name) return { ...w, distribution };
    return { ...w, distribution, weight: worker.weight, weights: worker.weights };
  });
}
