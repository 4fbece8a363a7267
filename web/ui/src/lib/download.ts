import { ApiError } from "../api/client";

/** saveAs lets the browser save a text as a file. */
export function saveAs(name: string, content: BlobPart, type: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** download fetches a file of the API in a media type, and saves it. A link cannot send an Accept header. */
export async function download(url: URL, accept: string, name: string): Promise<void> {
  const answer = await fetch(url, { headers: { Accept: accept } });
  if (!answer.ok) {
    const problem = (await answer.json().catch(() => ({}))) as { title?: string; detail?: string };
    throw new ApiError(answer.status, problem.title ?? "Export failed", problem.detail ?? "", [], "");
  }
  saveAs(name, await answer.blob(), accept);
}
