// Sentences about the stages before a worker is selected: hooks and the response cache.
import type { Cache, DecisionView, Hook } from "../../api/schema";
import { millis, plural } from "../../lib/format";
import { codedText } from "../../lib/reasons";

/** isKept reports whether a kept answer was sent. */
export function isKept({ cache }: Pick<DecisionView, "cache">): boolean {
  return cache?.result.endsWith("_hit") ?? false;
}

/** cacheText returns what the response cache did for a request. */
export function cacheText(c: Cache): string {
  return joined(
    codedText("cache", c.result),
    c.reason && codedText("bypass", c.reason),
    c.age_ms && `${millis(c.age_ms)} old`,
    c.similarity && `similarity ${c.similarity.toFixed(3)}`,
    c.shadow && `shadow mode: the kept answer and the new one are ${c.shadow}`,
    c.answer && `new answer ${c.answer === "kept" ? "" : "not kept, "}${codedText("kept", c.answer)}`,
  );
}

/** hookText returns how the call of a hook ended. */
export function hookText(h: Hook): string {
  return joined(
    codedText("hook", h.result),
    millis(h.duration_ms),
    h.shadow && "shadow: without effect",
    h.ignored_headers && `${plural(h.ignored_headers, "change")} of headers ignored`,
    h.error,
  );
}

function joined(...parts: (string | number | false | undefined)[]): string {
  return parts.filter(Boolean).join("; ");
}
