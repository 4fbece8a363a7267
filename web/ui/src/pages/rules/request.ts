import type { ExplainOrder } from "../../api/schema";
import { shellQuote } from "../../lib/curl";
import { shellWords } from "./shellWords";

/** Form is the request of the playground. body is the whole body as JSON text; if it is set, the other parts of the body are ignored. */
export interface Form {
  path: string;
  model: string;
  system: string;
  prompt: string;
  max_tokens: string;
  body: string;
  tenant: string;
  tier: string;
  class: string;
  headers: string;
}

export const emptyForm: Form = {
  path: "/v1/chat/completions",
  model: "auto",
  system: "",
  prompt: "",
  max_tokens: "",
  body: "",
  tenant: "",
  tier: "",
  class: "",
  headers: "",
};

/** shared are the fields of a shared link: all but the texts, which may be confidential. */
export const shared = ["path", "model", "max_tokens", "tenant", "tier", "class", "headers"] as const;

/** paths are the endpoints whose requests are routed by model. */
export const paths = [
  "/v1/chat/completions",
  "/v1/completions",
  "/v1/responses",
  "/v1/messages",
  "/v1/embeddings",
];

/** credentials are headers that the playground drops: it has the field tenant instead. */
const credentials = new Set(["authorization", "x-api-key", "api-key", "cookie"]);

/** Pasted is a request that was read from a pasted text. */
export interface Pasted {
  form: Partial<Form>;
  notes: string[];
}

/** parsePasted reads a JSON body or a curl command. It throws an error that says what is wrong. */
export function parsePasted(text: string): Pasted {
  const clean = text.trim();
  if (clean.startsWith("{")) return { form: { body: pretty(clean) }, notes: [] };
  if (/^curl\b/.test(clean)) return parseCurl(clean);
  throw new Error("Expected a JSON object or a curl command.");
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch (e) {
    throw new Error(`The body is no JSON: ${(e as Error).message}`);
  }
}

const dataFlags = new Set(["-d", "--data", "--data-raw", "--data-binary", "--data-ascii", "--json"]);
const valueFlags = new Set(["-X", "--request", "-u", "--user", "-o", "--output", "-m", "--max-time", "-A", "--user-agent"]);

function parseCurl(command: string): Pasted {
  const form: Partial<Form> = {};
  const notes: string[] = [];
  const headers: string[] = [];
  const all = shellWords(command);
  for (let i = 1; i < all.length; i++) {
    const word = all[i]!;
    if (dataFlags.has(word)) {
      const data = all[++i] ?? "";
      if (data.startsWith("@")) throw new Error(`The body is in the file ${data.slice(1)}: paste its content.`);
      form.body = pretty(data);
    } else if (word === "-H" || word === "--header") {
      addHeader(all[++i] ?? "", form, headers, notes);
    } else if (valueFlags.has(word)) {
      i++;
    } else if (/^https?:\/\//.test(word)) {
      form.path = new URL(word).pathname;
    }
  }
  if (form.body === undefined) throw new Error("The command has no body: -d is missing.");
  if (headers.length > 0) form.headers = headers.join("\n");
  return { form, notes };
}

function addHeader(header: string, form: Partial<Form>, headers: string[], notes: string[]): void {
  const at = header.indexOf(":");
  const name = header.slice(0, at).trim();
  const value = header.slice(at + 1).trim();
  switch (name.toLowerCase()) {
    case "content-type":
      return;
    case "x-model-tier":
      form.tier = value;
      return;
    case "x-request-priority":
      form.class = value;
      return;
  }
  if (credentials.has(name.toLowerCase())) notes.push(`${name} was dropped: select the tenant instead.`);
  else if (at > 0) headers.push(`${name}: ${value}`);
}

/** bodyOf returns the body of the request. It throws an error for a body that is no JSON object. */
export function bodyOf(f: Form): Record<string, unknown> {
  if (f.body.trim()) {
    const body: unknown = JSON.parse(pretty(f.body));
    if (typeof body !== "object" || body === null || Array.isArray(body)) throw new Error("The body must be a JSON object.");
    return body as Record<string, unknown>;
  }
  const limit = f.max_tokens.trim();
  if (limit && !/^\d+$/.test(limit)) throw new Error(`max_tokens is ${limit}: expected a whole number.`);
  const max = limit ? Number(limit) : undefined;
  const messages = [{ role: "user", content: f.prompt }];
  switch (f.path) {
    case "/v1/completions":
      return { model: f.model, prompt: f.prompt, ...(max !== undefined && { max_tokens: max }) };
    case "/v1/embeddings":
      return { model: f.model, input: f.prompt };
    case "/v1/responses":
      return { model: f.model, input: f.prompt, ...(f.system && { instructions: f.system }), ...(max !== undefined && { max_output_tokens: max }) };
    case "/v1/messages":
      return { model: f.model, max_tokens: max ?? 1024, ...(f.system && { system: f.system }), messages };
    default:
      return {
        model: f.model,
        ...(max !== undefined && { max_tokens: max }),
        messages: f.system ? [{ role: "system", content: f.system }, ...messages] : messages,
      };
  }
}

/** headersOf returns the headers of the request, without those that have a field of their own. */
export function headersOf(f: Form): Record<string, string> {
  const all: Record<string, string> = {};
  for (const line of f.headers.split("\n")) {
    const at = line.indexOf(":");
    if (!line.trim()) continue;
    if (at < 1) throw new Error(`The header ${line.trim()} has no colon.`);
    all[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  if (f.tier) all["X-Model-Tier"] = f.tier;
  return all;
}

/** orderOf returns the body of POST /admin/route/explain. */
export function orderOf(f: Form, draft: string | undefined): ExplainOrder {
  const headers = headersOf(f);
  return {
    request: bodyOf(f),
    path: f.path,
    ...(f.tenant && { tenant: f.tenant }),
    ...(f.class && { class: f.class as ExplainOrder["class"] }),
    ...(Object.keys(headers).length > 0 && { headers }),
    ...(draft !== undefined && { draft }),
  };
}

/** curlOf returns the request as a command for the data plane. */
export function curlOf(f: Form, origin: string): string {
  const headers = { ...headersOf(f), ...(f.class && { "X-Request-Priority": f.class }) };
  return [
    `curl -sS ${shellQuote(origin + f.path)}`,
    `-H "Authorization: Bearer $OPENAI_API_KEY"`,
    "-H 'Content-Type: application/json'",
    ...Object.entries(headers).map(([k, v]) => `-H ${shellQuote(`${k}: ${v}`)}`),
    `-d ${shellQuote(JSON.stringify(bodyOf(f)))}`,
  ].join(" \\\n  ");
}
