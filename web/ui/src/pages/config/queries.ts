import { queryOptions } from "@tanstack/react-query";
import { api, result } from "../../api/client";

export const configQuery = queryOptions({
  queryKey: ["config", "effective"],
  queryFn: () => result(api.GET("/admin/config")),
});

export const fileQuery = queryOptions({
  queryKey: ["config", "file"],
  queryFn: () => result(api.GET("/admin/config/file")),
});

/** validate checks a text, or the file on disk if there is none. */
export function validate(text: string) {
  return result(api.POST("/admin/config/validate", { body: text ? { text } : {} }));
}

/** preview returns what a reload of the file on disk would change. */
export function preview() {
  return result(api.POST("/admin/reload", { params: { query: { dry_run: true } } }));
}

/** previewQuery is the preview of the file on disk as it is now. */
export const previewQuery = queryOptions({ queryKey: ["config", "preview"], queryFn: preview, staleTime: 0, retry: false });

/** reload applies the file on disk if its hash is still that of the preview. */
export function reload(hash: string) {
  return result(api.POST("/admin/reload", { params: { header: { "If-Match": `"${hash}"` } } }));
}
