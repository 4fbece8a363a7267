// The tab's side of the stream: it writes events into the query cache, so that pages only use queries.
import { useEffect, useSyncExternalStore } from "react";
import { api, base, result } from "../api/client";
import { queries } from "../api/queries";
import type { OverviewView } from "../api/schema";
import type { Message, Topic } from "./connection";
import { append, emptyFeed, type Feed } from "./decisions";
import { liveness, staleLists, type Liveness, type Signs } from "./liveness";
import { Polling } from "./polling";
import { openTransport, type Send } from "./transport";

const aliveEvery = 20_000;
const clockEvery = 500;

/** Live is the state of the stream in this tab. */
class Live {
  #send: Send | undefined;
  #topics = new Map<Topic, number>();
  #listeners = new Set<() => void>();
  #signs: Signs = { startedAt: 0, eventAt: 0, polledAt: 0, lost: false };
  #signedOut = false;
  #liveness: Liveness = liveness(this.#signs, 0);
  #polling = new Polling(() => this.#poll());
  #feed: Feed = emptyFeed;
  #paint: number | undefined;

  readonly liveness = () => this.#liveness;
  readonly feed = () => this.#feed;

  readonly subscribe = (f: () => void) => {
    this.#listeners.add(f);
    return () => this.#listeners.delete(f);
  };

  /** start connects; call it after each login. */
  start(): void {
    this.#signedOut = false;
    if (this.#send) {
      this.#send({ kind: "login" });
      return;
    }
    this.#signs.startedAt = Date.now();
    this.#send = openTransport(base, (m) => this.#receive(m));
    this.#sendTopics();
    setInterval(() => this.#sendTopics(), aliveEvery); // the worker forgets a silent tab
    setInterval(() => this.#tick(), clockEvery);
    addEventListener("pagehide", () => this.#send?.({ kind: "tab_closed" }));
    addEventListener("pageshow", () => this.#sendTopics());
  }

  /** addTopic adds a topic until the returned function is called. */
  addTopic(topic: Topic): () => void {
    this.#topics.set(topic, (this.#topics.get(topic) ?? 0) + 1);
    this.#sendTopics();
    return () => {
      const n = (this.#topics.get(topic) ?? 1) - 1;
      if (n > 0) this.#topics.set(topic, n);
      else this.#topics.delete(topic);
      this.#sendTopics();
    };
  }

  #sendTopics(): void {
    this.#send?.({ kind: "topics", base, topics: ["overview", ...this.#topics.keys()] });
  }

  #receive(m: Message): void {
    if (m.kind === "state") {
      this.#signs.lost = m.state !== "open";
      this.#signedOut = m.state === "signed_out";
      this.#tick();
      if (this.#signedOut) void queries.invalidateQueries({ queryKey: ["session"] });
      // Records may have ended after the list was fetched and before the stream opened.
      if (m.state === "open" && this.#topics.has("decisions")) void queries.invalidateQueries({ queryKey: ["decisions"] });
      return;
    }
    const data: unknown = JSON.parse(m.data);
    switch (m.event) {
      case "overview":
        this.#signs.eventAt = Date.now();
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

  // The gateway answers requests although it has no place for a stream, or a proxy keeps the events back.
  async #poll(): Promise<void> {
    const overview = await result(api.GET("/admin/overview"));
    if (this.#liveness.state !== "stale") return; // an event arrived meanwhile
    this.#signs.polledAt = Date.now();
    this.#overview(overview);
    await queries.invalidateQueries({ queryKey: ["workers"] });
  }

  #tick(): void {
    const now = Date.now();
    const state = liveness(this.#signs, now);
    this.#polling.update(state.state === "stale" && !this.#signedOut && !document.hidden, now);
    if (state.text === this.#liveness.text) return;
    this.#liveness = state;
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
  useEffect(() => live.addTopic(topic), [topic]);
}

/** useLiveness returns whether the data on the page is current. */
export function useLiveness(): Liveness {
  return useSyncExternalStore(live.subscribe, live.liveness);
}

/** useFeed returns the live list of decisions. */
export function useFeed(): Feed {
  return useSyncExternalStore(live.subscribe, live.feed);
}
