// The way of a tab to the stream: through the worker that all tabs share, or through its own connection.
import { Connection, type Message, type Topic } from "./connection";

/** TabRequest is what a tab sends to the shared worker. */
export type TabRequest = { kind: "topics"; base: string; topics: Topic[] } | { kind: "login" } | { kind: "tab_closed" };

export type Send = (request: TabRequest) => void;

/**
 * openTransport calls receive with each message of the stream. Where the shared worker does not exist
 * or fails, the tab opens its own connection.
 */
export function openTransport(base: string, receive: (m: Message) => void): Send {
  let topics: TabRequest | undefined;
  const fallBack = () => {
    send = openOwn(base, receive);
    if (topics) send(topics);
  };
  let send = openShared(receive, fallBack) ?? openOwn(base, receive);
  return (request) => {
    if (request.kind === "topics") topics = request;
    send(request);
  };
}

// Returns undefined without shared workers, or if the browser forbids them.
function openShared(receive: (m: Message) => void, fallBack: () => void): Send | undefined {
  if (typeof SharedWorker === "undefined") return undefined;
  let worker: SharedWorker;
  try {
    worker = new SharedWorker(new URL("./stream.worker.ts", import.meta.url), { type: "module", name: "tierway" });
  } catch {
    return undefined;
  }
  const { port } = worker;
  port.onmessage = (m: MessageEvent<Message>) => receive(m.data);
  worker.onerror = () => {
    worker.onerror = null;
    // A worker that runs in spite of the error must not send each event a second time.
    port.onmessage = null;
    port.postMessage({ kind: "tab_closed" } satisfies TabRequest);
    port.close();
    fallBack();
  };
  return (request) => port.postMessage(request);
}

function openOwn(base: string, receive: (m: Message) => void): Send {
  const connection = new Connection(base, receive);
  let wanted: Topic[] = [];
  const apply = () => connection.setTopics(document.hidden ? [] : wanted);
  document.addEventListener("visibilitychange", apply);
  return (request) => {
    if (request.kind === "topics") wanted = request.topics;
    if (request.kind === "login") connection.reconnect();
    apply();
  };
}
