// The tab's side of the stream: it writes events into the query cache, so that pages only use queries.
import { useEffect, useSyncExternalStore } from "react";
import { base } from "../api/client";
import { queries } from "../api/queries";
import type { OverviewView } from "../api/schema";
import { Connection, type Message, type Topic } from "./connection";
import { append, emptyFeed, type Feed } from "./decisions";
import { liveness, staleLists, type Liveness } from "./liveness";
import type { Wish } from "./stream.worker";

const aliveEvery = 20_000;
const clockEvery = 500;

/** Live is the state of the stream in this tab. */
class Live {
  #send: ((w: Wish) => void) | undefined;
  #topics = new Map<Topic, number>();
  #listeners = new Set<() => void>();
  #lastEvent = 0;
  #lost = false;
  #liveness: Liveness = liveness(0, 0);
  #feed: Feed = emptyFeed;
  #paint: number | undefined;

  readonly liveness = () => this.#liveness;
  readonly feed = () => this.#feed;

  readonly subscribe = (f: () => void) => {
    this.#listeners.add(f);
    return () => this.#listeners.delete(f);
  };

  /** start connects; call it once after the login. */
  start(): void {
    if (this.#send) {
      this.#send({ kind: "login" });
      return;
    }
    this.#send = typeof SharedWorker === "undefined" ? this.#own() : this.#shared();
    this.#wish();
    setInterval(() => this.#wish(), aliveEvery); // the worker forgets a silent tab
    setInterval(() => this.#tick(), clockEvery);
    addEventListener("pagehide", () => this.#send?.({ kind: "bye" }));
    addEventListener("pageshow", () => this.#wish());
  }

  /** want adds a topic until the returned function is called. */
  want(topic: Topic): () => void {
    this.#topics.set(topic, (this.#topics.get(topic) ?? 0) + 1);
    this.#wish();
    return () => {
      const n = (this.#topics.get(topic) ?? 1) - 1;
      if (n > 0) this.#topics.set(topic, n);
      else this.#topics.delete(topic);
      this.#wish();
    };
  }

  #wish(): void {
    this.#send?.({ kind: "topics", base, topics: ["overview", ...this.#topics.keys()] });
  }

  #shared(): (w: Wish) => void {
    const worker = new SharedWorker(new URL("./stream.worker.ts", import.meta.url), { type: "module", name: "tierway" });
    worker.port.onmessage = (m: MessageEvent<Message>) => this.#receive(m.data);
    return (w) => worker.port.postMessage(w);
  }

  #own(): (w: Wish) => void {
    const connection = new Connection(base, (m) => this.#receive(m));
    let wanted: Topic[] = [];
    const apply = () => connection.setTopics(document.hidden ? [] : wanted);
    document.addEventListener("visibilitychange", apply);
    return (w) => {
      if (w.kind === "topics") wanted = w.topics;
      if (w.kind === "login") connection.reconnect();
      apply();
    };
  }

  #receive(m: Message): void {
    if (m.kind === "state") {
      this.#lost = m.state !== "open";
      this.#tick();
      if (m.state === "signed_out") void queries.invalidateQueries({ queryKey: ["session"] });
      return;
    }
    const data: unknown = JSON.parse(m.data);
    switch (m.event) {
      case "overview":
        this.#lastEvent = Date.now();
        this.#tick();
        this.#overview(data as OverviewView);
        break;
      case "workers":
        queries.setQueryData(["workers"], data);
        break;
      default:
        this.#feed = append(this.#feed, m.event, data);
        this.#notifySoon();
    }
  }

  #overview(now: OverviewView): void {
    const before = queries.getQueryData<OverviewView>(["overview"]);
    queries.setQueryData(["overview"], now);
    for (const key of staleLists(before?.versions as never, now.versions as never)) {
      void queries.invalidateQueries({ queryKey: [key] });
    }
  }

  #tick(): void {
    const now = liveness(this.#lastEvent, Date.now(), this.#lost);
    if (now.text === this.#liveness.text) return;
    this.#liveness = now;
    this.#notify();
  }

  // Events arrive in groups; one painting per group is enough.
  #notifySoon(): void {
    this.#paint ??= requestAnimationFrame(() => {
      this.#paint = undefined;
      this.#notify();
    });
  }

  #notify(): void {
    for (const f of this.#listeners) f();
  }
}

export const live = new Live();

/** useTopic keeps a topic of the stream while the component is shown. */
export function useTopic(topic: Topic): void {
  useEffect(() => live.want(topic), [topic]);
}

/** useLiveness returns whether the data on the page is current. */
export function useLiveness(): Liveness {
  return useSyncExternalStore(live.subscribe, live.liveness);
}

/** useFeed returns the live list of decisions. */
export function useFeed(): Feed {
  return useSyncExternalStore(live.subscribe, live.feed);
}
