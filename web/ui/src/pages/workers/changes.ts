import { queryOptions } from "@tanstack/react-query";
import { api, ApiError, result } from "../../api/client";
import { queries, workersQuery } from "../../api/queries";
import type { WorkerAnswer, WorkerState } from "../../api/schema";
import { toast } from "../../ui/Toasts";
import { recentAnswers, withAnswers, type Answer } from "./answers";
import { changeOf, changeTo, restoreOf, type Restore } from "./weights";

const ifMatch = (version: number) => ({ "If-Match": `"v${version}"` });

/** previewWeight returns the shares of the pool's workers if a worker had another weight. */
export function previewWeight(name: string, weight: number) {
  return result(
    api.PATCH("/admin/workers/{name}", { params: { path: { name }, query: { dry_run: true } }, body: { weight } }),
  );
}

/** removalQuery is the preview of a pool without a worker, with the warnings about it. Each dialog fetches its own. */
export const removalQuery = (name: string) =>
  queryOptions({ queryKey: ["worker-removal", name], queryFn: () => previewWeight(name, 0), gcTime: 0 });

/** changeWeight changes the weight of a worker, if its override still has a version. */
async function changeWeight(name: string, version: number, body: { weight: number | null; ttl_s?: number }) {
  const params = { path: { name }, header: ifMatch(version) };
  const answer = await result(api.PATCH("/admin/workers/{name}", { params, body }));
  accept(answer, version);
  return answer;
}

/** setWeight sets the weight of a worker, if its override did not change since w was read. */
export function setWeight(w: WorkerState, weight: number, ttl_s: number | undefined) {
  return changeWeight(w.name, w.weights.version, changeTo(w, weight, ttl_s));
}

/** undo returns a function that restores the weight of w, if its override still has a version. */
export function undo(w: WorkerState, version: number): () => void {
  const before: Restore = restoreOf(w);
  return () =>
    void changeWeight(w.name, version, changeOf(before, Date.now())).catch((e: unknown) => {
      refresh();
      toast(`The weight of ${w.name} was not restored. ${reasonOf(e)}`);
    });
}

/**
 * resetWeight brings back the weight of config.yaml. Unlike DELETE /admin/overrides/{worker}, it does not end a drain.
 */
export function resetWeight(w: WorkerState) {
  return changeWeight(w.name, w.weights.version, { weight: null });
}

/** drain lets a worker finish its requests and sends it no new ones. */
export function drain(name: string, timeout_s: number) {
  return result(api.POST("/admin/workers/{name}/drain", { params: { path: { name } }, body: { timeout_s } }));
}

/** undrain ends a drain. */
export function undrain(name: string) {
  return result(api.POST("/admin/workers/{name}/undrain", { params: { path: { name } } }));
}

/** reasonOf returns why a change failed, and what to do. */
export function reasonOf(e: unknown): string {
  if (e instanceof ApiError && e.status === 412) return "The override was changed meanwhile. Look at it and try again.";
  return e instanceof Error ? e.message : String(e);
}

/** refresh fetches the workers again, after a change. */
export function refresh(): void {
  void queries.invalidateQueries({ queryKey: ["workers"] });
}

let answers: Answer[] = [];

/** withChanges returns the workers with the changes of this tab that the live data does not have yet. */
export function withChanges(workers: WorkerState[]): WorkerState[] {
  return withAnswers(workers, answers, Date.now());
}

function accept({ worker, expected }: WorkerAnswer, before: number): void {
  const now = Date.now();
  answers = [...recentAnswers(answers, now), { worker, expected, before, at: now }];
  // A new object draws the page again.
  queries.setQueryData(workersQuery.queryKey, (old) => old && { ...old });
  refresh();
}
