import { api, result } from "../../api/client";
import { queries } from "../../api/queries";
import type { WorkerState } from "../../api/schema";
import type { Restore } from "./weights";

const path = (name: string) => ({ path: { name } });

/** previewWeight returns the shares of the pool's workers if a worker had another weight. */
export function previewWeight(name: string, weight: number) {
  return result(
    api.PATCH("/admin/workers/{name}", { params: { ...path(name), query: { dry_run: true } }, body: { weight } }),
  );
}

/** setWeight sets the weight of a worker, if its override still has a version. */
export function setWeight(w: WorkerState, version: number, weight: number, ttl_s: number | undefined) {
  return result(
    api.PATCH("/admin/workers/{name}", {
      params: { ...path(w.name), header: { "If-Match": `"v${version}"` } },
      body: { weight, ...(ttl_s !== undefined && { ttl_s }) },
    }),
  );
}

/** restore brings back an earlier override of a worker. */
export async function restore(name: string, r: Restore): Promise<void> {
  // A weight of null resets the weight only: a drain that began meanwhile stays.
  const body = r.kind === "reset" ? { weight: null } : { weight: r.weight, ...(r.ttl_s !== undefined && { ttl_s: r.ttl_s }) };
  await result(api.PATCH("/admin/workers/{name}", { params: path(name), body }));
  refresh();
}

/** drain lets a worker finish its requests and sends it no new ones. */
export function drain(name: string, timeout_s: number) {
  return result(api.POST("/admin/workers/{name}/drain", { params: path(name), body: { timeout_s } }));
}

/** undrain ends a drain. */
export function undrain(name: string) {
  return result(api.POST("/admin/workers/{name}/undrain", { params: path(name) }));
}

/** refresh fetches the workers again, after a change. */
export function refresh(): void {
  void queries.invalidateQueries({ queryKey: ["workers"] });
}
