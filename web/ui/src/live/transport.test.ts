import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Message } from "./connection";
import { openTransport } from "./transport";

const base = "http://gateway.example/";
let sources: string[];
let workers: FakeWorker[];

class FakeWorker {
  sent: { kind: string }[] = [];
  onerror: (() => void) | null = null;
  port = { onmessage: null as ((m: { data: Message }) => void) | null, postMessage: (m: { kind: string }) => this.sent.push(m), close: vi.fn() };
  constructor() {
    workers.push(this);
  }
}

beforeEach(() => {
  sources = [];
  workers = [];
  vi.stubGlobal("document", { hidden: false, addEventListener: () => {} });
  vi.stubGlobal(
    "EventSource",
    class {
      constructor(url: URL) {
        sources.push(url.href);
      }
      addEventListener() {}
      close() {}
    },
  );
});
afterEach(() => vi.unstubAllGlobals());

const topics = { kind: "topics", base, topics: ["overview"] } as const;

test("tabs use the shared worker, which owns the connection", () => {
  vi.stubGlobal("SharedWorker", FakeWorker);
  const received: Message[] = [];
  openTransport(base, (m) => received.push(m))({ ...topics, topics: ["overview"] });
  expect(workers[0]!.sent).toEqual([topics]);
  workers[0]!.port.onmessage?.({ data: { kind: "state", state: "open" } });
  expect(received).toHaveLength(1);
  expect(sources).toEqual([]);
});

test("without its shared worker, a tab opens its own connection with the same topics", () => {
  vi.stubGlobal("SharedWorker", FakeWorker);
  const send = openTransport(base, () => {});
  send({ ...topics, topics: ["overview"] });
  workers[0]!.onerror!();
  expect(sources).toEqual([`${base}admin/stream?topics=overview`]);
  expect(workers[0]!.sent.at(-1)).toEqual({ kind: "tab_closed" });
  expect(workers[0]!.port.onmessage).toBeNull();
  send({ ...topics, topics: ["overview", "workers"] });
  expect(sources).toHaveLength(2);
});

test.each([
  ["forbids", class { constructor() { throw new Error("SecurityError"); } }],
  ["does not have", undefined],
])("a tab of a browser that %s shared workers opens its own connection", (_, worker) => {
  vi.stubGlobal("SharedWorker", worker);
  openTransport(base, () => {})({ ...topics, topics: ["overview"] });
  expect(sources).toEqual([`${base}admin/stream?topics=overview`]);
});
