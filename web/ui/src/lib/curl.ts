/** shellQuote quotes a text for a POSIX shell. */
export function shellQuote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** adminCurl returns the curl command of an admin request. Its key comes from $ADMIN_KEY. */
export function adminCurl(base: string, method: string, path: string, body?: unknown): string {
  const parts = ["curl -sS"];
  if (method !== "GET") parts.push(`-X ${method}`);
  parts.push(shellQuote(new URL(path.replace(/^\//, ""), base).href), `-H "Authorization: Bearer $ADMIN_KEY"`);
  if (body !== undefined) {
    parts.push(`-H 'Content-Type: application/json'`, `-d ${shellQuote(JSON.stringify(body))}`);
  }
  return parts.join(" ");
}
