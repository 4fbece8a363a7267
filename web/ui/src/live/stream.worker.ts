// Holds the one connection of a browser and passes its messages to all tabs. Browsers open at most
// six connections per host over HTTP/1.1, so a connection per tab would block the seventh tab.
import { Connection, type Topic } from "./connection";
import type { TabRequest } from "./transport";

interface Tab {
  topics: Topic[];
  lastMessage: number;
}

// A closed tab sends tab_closed, but a crashed one does not. Timers of hidden tabs run once a minute.
const silence = 150_000;

const tabs = new Map<MessagePort, Tab>();
let connection: Connection | undefined;

function update(): void {
  const now = Date.now();
  for (const [port, tab] of tabs) if (now - tab.lastMessage > silence) tabs.delete(port);
  connection?.setTopics([...tabs.values()].flatMap((t) => t.topics));
}

function receive(port: MessagePort, request: TabRequest): void {
  const tab = tabs.get(port) ?? { topics: [], lastMessage: 0 };
  tab.lastMessage = Date.now();
  tabs.set(port, tab);
  switch (request.kind) {
    case "topics":
      connection ??= new Connection(request.base, (m) => {
        for (const p of tabs.keys()) p.postMessage(m);
      });
      tab.topics = request.topics;
      update();
      break;
    case "login":
      connection?.reconnect();
      break;
    case "tab_closed":
      tabs.delete(port);
      update();
  }
}

(self as unknown as { onconnect: (e: MessageEvent) => void }).onconnect = (e) => {
  const port = e.ports[0]!;
  port.onmessage = (m: MessageEvent<TabRequest>) => receive(port, m.data);
};
