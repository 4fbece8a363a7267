import { ApiError } from "../../api/client";

/** positioned is a problem as the gateway writes it: file, line, column and message. */
const positioned = /^.+?:(\d+):\d+: (.*)$/s;

/** withLines returns an error in which each problem of the file begins with its line. preview: nothing was to be applied. */
export function withLines(error: Error | null, preview = false): Error | null {
  if (!(error instanceof ApiError)) return error;
  const fields = error.fields.map((f) => {
    const [, line, message] = positioned.exec(f.message) ?? [];
    return line === undefined ? f : { location: "", message: `line ${line}: ${message}` };
  });
  const detail = preview ? error.detail.replace("was not applied", "cannot be applied") : error.detail;
  return new ApiError(error.status, error.title, detail, fields, error.requestId);
}
