// Helpers of the test cases. browser_test.go sets the environment and serves the control address.

import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { expect, test as base, type BrowserContext, type Page } from "@playwright/test";
import type { AxeResults } from "axe-core";

export { expect };

/** The addresses and keys of the gateway that this file of test cases has for itself. */
export const env = {
  /** The data plane; ends in /v1. */
  baseURL: variable("BASE_URL"),
  /** The admin plane, without a slash at the end. page.goto("/") goes there. */
  adminURL: variable("ADMIN_URL"),
  /** The admin plane behind a proxy that removes a path prefix; ends in a slash. */
  prefixURL: variable("PREFIX_URL"),
  /** The key of the admin ops. */
  adminKey: variable("ADMIN_KEY"),
  /** The key of the viewer audit. */
  viewerKey: variable("VIEWER_KEY"),
  /** The key of the tenant acme. */
  apiKey: variable("API_KEY"),
  /** The path of the configuration file, which a test case may rewrite. */
  configFile: variable("CONFIG_FILE"),
  /** A text that makes an engine hold the answer to a prompt until release(). */
  holdMark: variable("PAUSE_MARK"),
};

function variable(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run go test -tags nomsgpack ./e2e/browser`);
  return value;
}

/** What the pages of a test case have requested and reported. */
export class Journal {
  /** The console errors, uncaught exceptions and CSP violations so far. */
  readonly errors: string[] = [];
  /** The URLs of all requests so far. */
  readonly requests: string[] = [];
  // Every first visit looks for a session, which it does not have yet.
  #permitted: RegExp[] = [/status of 401 .*\/admin\/session\)$/];
  #origins = new Set([env.adminURL, env.prefixURL].map((url) => new URL(url).origin));

  /** Permits errors that match a pattern, such as those of a stopped gateway. */
  permit(...patterns: RegExp[]): void {
    this.#permitted.push(...patterns);
  }

  /** Permits requests to the origin of a URL, such as that of the demo. */
  permitOrigin(url: string): void {
    this.#origins.add(new URL(url).origin);
  }

  /** Returns the errors that no pattern permits. */
  unexpectedErrors(): string[] {
    return this.errors.filter((text) => !this.#permitted.some((pattern) => pattern.test(text)));
  }

  /** Returns the requests that left the gateway's origin. */
  foreignRequests(): string[] {
    return this.requests.filter((text) => {
      const url = new URL(text);
      return !["data:", "blob:", "about:"].includes(url.protocol) && !this.#origins.has(url.origin);
    });
  }

  /** Records everything that happens in a browser context. */
  watch(context: BrowserContext): void {
    context.on("request", (request) => this.requests.push(request.url()));
    context.on("weberror", (error) => this.errors.push(`uncaught: ${error.error().message}`));
    context.on("console", (message) => {
      if (message.type() !== "error") return;
      const at = message.location().url;
      this.errors.push(at ? `${message.text()} (${at})` : message.text());
    });
  }
}

/** Errors in the console of a page of which the gateway has stopped. */
export const connectionLost = /net::ERR_(CONNECTION_(REFUSED|RESET|CLOSED)|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE)/;

/** Returns the pattern of the console error of a response with this status. */
export function statusError(status: number): RegExp {
  return new RegExp(`the server responded with a status of ${status}\\b`);
}

/**
 * Playwright's test, with a journal of the page. Each test case begins with a running gateway
 * without faults and with its original configuration file. It fails if a page reported an
 * unexpected error or sent a request to another origin.
 */
export const test = base.extend<{ journal: Journal }>({
  journal: [
    async ({ context }, use) => {
      await control("POST", "/reset");
      const journal = new Journal();
      journal.watch(context);
      await use(journal);
      expect(journal.foreignRequests(), "requests to other origins").toEqual([]);
      expect(journal.unexpectedErrors(), "errors in the console").toEqual([]);
    },
    { auto: true },
  ],
});

/**
 * Opens a session for the pages of this context and goes to a page of the UI. Test cases of the
 * login form fill in the form instead.
 */
export async function login(page: Page, key = env.adminKey, path = "/", root = `${env.adminURL}/`): Promise<void> {
  // The new session ends the old one, which an open page would use. And a change of the fragment alone would not load
  // the page again.
  await page.goto("about:blank");
  const response = await page.request.post(`${root}admin/session`, { data: { key } });
  expect(response.status(), "POST admin/session").toBe(201);
  await page.goto(`${root}#${path}`);
}

/**
 * Fails if axe-core finds a violation of WCAG 2.2 A or AA in the light or the dark theme. The page
 * must follow the theme of the system. within restricts the check to a CSS selector.
 */
export async function expectAccessible(page: Page, within?: string): Promise<void> {
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    // The content security policy does not apply to evaluated expressions, unlike to script elements.
    if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axeSource());
    const found = await page.evaluate(runAxe, within);
    expect(found, `violations in the ${colorScheme} theme`).toEqual([]);
  }
  await page.emulateMedia({ colorScheme: null, reducedMotion: null });
}

function axeSource(): string {
  return readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
}

/** Runs axe-core in the page and returns one line for each element with a violation. */
async function runAxe(within?: string): Promise<string[]> {
  const { axe } = window as unknown as { axe: { run(root: unknown, options: object): Promise<AxeResults> } };
  const results = await axe.run(within ?? document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
    resultTypes: ["violations"],
  });
  return results.violations.flatMap((violation) =>
    violation.nodes.map(
      (node) => `${violation.id}: ${node.target.join(" ")}: ${node.failureSummary ?? violation.help}`,
    ),
  );
}

/**
 * Fails if the page has a secret in its DOM, its fields, its address or any storage of the browser,
 * or if it has a database, which this check does not read.
 */
export async function assertSecretAbsent(page: Page, secret: string): Promise<void> {
  const found = await page.evaluate(findSecret, secret);
  const cookies = await page.context().cookies();
  if (cookies.some((cookie) => decodeURIComponent(cookie.value).includes(secret))) found.push("a cookie");
  expect(found, "places with the secret").toEqual([]);
}

/** Returns the places of the page that have the secret. */
async function findSecret(secret: string): Promise<string[]> {
  const databases = await indexedDB.databases();
  const fields = [...document.querySelectorAll<HTMLInputElement>("input, textarea, select")];
  const places: Record<string, string> = {
    "the DOM": document.documentElement.outerHTML,
    "a field": JSON.stringify(fields.map((field) => field.value)),
    "the address": decodeURIComponent(location.href),
    "the state of the history": JSON.stringify(history.state) ?? "",
    "window.name": window.name,
    localStorage: JSON.stringify({ ...localStorage }),
    sessionStorage: JSON.stringify({ ...sessionStorage }),
    "a name of a cache": JSON.stringify(await caches.keys()),
  };
  return [
    ...Object.keys(places).filter((name) => places[name]!.includes(secret)),
    ...databases.map((database) => `the database ${database.name}, which is not read`),
  ];
}

/** The answer of the data plane to one request. */
export interface Answer {
  status: number;
  headers: Headers;
  body: string;
}

/** The options of send. */
export interface Sending {
  model?: string;
  key?: string;
  maxTokens?: number;
  temperature?: number;
  stream?: boolean;
  /** The number of requests in flight at once; default 8. */
  atOnce?: number;
  headers?: Record<string, string>;
}

/**
 * Sends n chat requests with a prompt and returns their answers. With env.holdMark in the prompt,
 * the answers are held until release(): do not await the promise before.
 */
export async function send(n: number, prompt: string, options: Sending = {}): Promise<Answer[]> {
  const answers: Answer[] = [];
  let left = n;
  const sendNext = async (): Promise<void> => {
    while (left > 0) {
      left--;
      answers.push(await sendOne(prompt, options));
    }
  };
  await Promise.all(Array.from({ length: Math.min(n, options.atOnce ?? 8) }, sendNext));
  return answers;
}

async function sendOne(prompt: string, options: Sending): Promise<Answer> {
  const response = await fetch(`${env.baseURL}/chat/completions`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${options.key ?? env.apiKey}`,
      "content-type": "application/json",
      ...options.headers,
    },
    body: JSON.stringify({
      model: options.model ?? "auto",
      max_tokens: options.maxTokens ?? 5,
      temperature: options.temperature,
      stream: options.stream ?? false,
      messages: [{ role: "user", content: prompt }],
    }),
  });
  return { status: response.status, headers: response.headers, body: await response.text() };
}

/** Sends a request to the admin API and returns its JSON. A status of 400 or more is an error. */
export async function admin<T = any>(method: string, path: string, body?: unknown, key = env.adminKey): Promise<T> {
  const response = await fetch(env.adminURL + path, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      ...(body === undefined ? {} : { "content-type": "application/json" }),
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return (text === "" ? undefined : JSON.parse(text)) as T;
}

/** Returns the text of the configuration file. */
export function readConfig(): string {
  return readFileSync(env.configFile, "utf8");
}

/** Writes the configuration file. The gateway applies it after a reload. */
export function writeConfig(text: string): void {
  writeFileSync(env.configFile, text);
}

/**
 * Reloads the configuration file with a policy for all tiers and returns its text. The next test
 * case begins with the original file.
 */
export async function setPolicy(name: string): Promise<string> {
  const text = `${readConfig()}policy: { name: ${name} }\n`;
  writeConfig(text);
  await admin("POST", "/admin/reload");
  return text;
}

/** Returns the record of a request. It exists a moment after the end of the answer. */
export async function decisionOf(answer: Answer): Promise<any> {
  const id = answer.headers.get("x-request-id");
  expect(id, "X-Request-Id").toBeTruthy();
  let records: any[] = [];
  await expect
    .poll(async () => {
      records = (await admin("GET", `/admin/decisions?request_id=${encodeURIComponent(id!)}`)).items;
      return records.length;
    })
    .toBe(1);
  return records[0];
}

async function control(method: string, path: string, body?: unknown): Promise<string> {
  const response = await fetch(variable("CONTROL_URL") + path, {
    method,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path} of the control address: ${response.status} ${text}`);
  return text;
}

/** The gateway of this file. */
export const gateway = {
  /** Stops it with SIGTERM and waits for its end. */
  stop: () => control("POST", "/stop"),
  /** Ends it with SIGKILL. */
  kill: () => control("POST", "/kill"),
  /** Starts it on the same addresses, with the same database, and waits until it is ready. */
  start: () => control("POST", "/start"),
  /** Returns its log so far. */
  log: () => control("GET", "/log"),
};

/** A fault of an engine: the fields of chaos.Fault (engines/chaos/fault.go) in any case. */
export interface Fault {
  kind: string;
  paths?: string[];
  times?: number;
  after?: number;
  delay?: number;
  status?: number;
  retryAfter?: string;
}

/** The engine of a worker: small-0 to small-2, medium-0, medium-1, large-0 and large-1. */
export function engine(name: string) {
  return {
    /** Closes its port and resets its connections, as a crash would. */
    stop: () => control("POST", `/engines/${name}/stop`),
    /** Starts it on the same address. */
    start: () => control("POST", `/engines/${name}/start`),
    /** Replaces its faults. Without paths, a fault concerns every POST, but no health check. */
    fail: (...faults: Fault[]) => control("PUT", `/engines/${name}/faults`, faults),
    /** Removes its faults. */
    recover: () => control("PUT", `/engines/${name}/faults`, []),
  };
}

/** Continues all answers that env.holdMark holds. Later answers are held again. */
export async function release(): Promise<void> {
  await control("POST", "/release");
}

/** The line of JSON that `tierway demo --json` prints. */
export interface Demo {
  base_url: string;
  admin_url: string;
  api_key: string;
  admin_key: string;
}

/** Starts `tierway demo`, which runs until the end of this file. */
export async function startDemo<T extends Demo = Demo>(): Promise<T> {
  return JSON.parse(await control("POST", "/demo")) as T;
}
