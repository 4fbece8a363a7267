import { ApiError } from "../../api/client";

/** DraftProblem is one error of an edited configuration. */
export interface DraftProblem {
  /** From 1; 0 if it has no place in the text. */
  line: number;
  text: string;
}

/** problemsOf returns the errors of an edited configuration, or undefined if the error is about something else. */
export function problemsOf(error: unknown): DraftProblem[] | undefined {
  if (!(error instanceof ApiError)) return undefined;
  const found = error.fields.filter((f) => f.location.startsWith("body.draft"));
  if (found.length === 0) return undefined;
  return found.map((f) => {
    const at = /^draft:(\d+):\d+: (.*)$/s.exec(f.message);
    return at ? { line: Number(at[1]), text: at[2]! } : { line: 0, text: f.message };
  });
}

/** lineRange returns the first and the last position of a line in a text. */
export function lineRange(text: string, line: number): [from: number, to: number] {
  let from = 0;
  for (let i = 1; i < line; i++) {
    const end = text.indexOf("\n", from);
    if (end < 0) break;
    from = end + 1;
  }
  const to = text.indexOf("\n", from);
  return [from, to < 0 ? text.length : to];
}
