// The connection to GET /admin/stream. The shared worker owns one for all tabs of a browser. Where
// there are no shared workers, each visible tab owns one.

export type Topic = "overview" | "workers" | "decisions";

/** Message is what a connection reports to its tabs. */
export type Message =
  | { kind: "event"; event: string; data: string }
  | { kind: "state"; state: "open" | "lost" | "signed_out" };

const events = ["overview", "workers", "decision", "gap", "dropped"];

/** Connection follows the stream with the topics that are wanted. */
export class Connection {
  #source: EventSource | undefined;
  #topics = "";
  #last = "";
  #retry: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly base: string,
    readonly emit: (m: Message) => void,
  ) {}

  /** setTopics connects with other topics, or closes the connection if there are none. */
  setTopics(topics: Iterable<Topic>): void {
    const wanted = [...new Set(topics)].sort().join(",");
    if (wanted === this.#topics && this.#source) return;
    this.#topics = wanted;
    this.#connect();
  }

  /** reconnect connects at once, for example after a login. */
  reconnect(): void {
    this.#connect();
  }

  close(): void {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = undefined;
  }

  #connect(): void {
    this.close();
    if (!this.#topics) return;
    const url = new URL("admin/stream", this.base);
    url.searchParams.set("topics", this.#topics);
    if (this.#last) url.searchParams.set("last_event_id", this.#last);
    const source = new EventSource(url);
    this.#source = source;
    source.onopen = () => this.emit({ kind: "state", state: "open" });
    source.onerror = () => void this.#failed(source);
    for (const event of events) {
      source.addEventListener(event, (e) => {
        const message = e as MessageEvent<string>;
        if (message.lastEventId) this.#last = message.lastEventId;
        this.emit({ kind: "event", event, data: message.data });
      });
    }
  }

  // A browser reconnects by itself after a lost connection, but not after an answer that is no
  // stream. It does not reveal the status of such an answer, so a request for the session reads it.
  async #failed(source: EventSource): Promise<void> {
    if (source !== this.#source) return;
    this.emit({ kind: "state", state: "lost" });
    if (source.readyState !== EventSource.CLOSED) return;
    const headers = { "X-Tierway-Background": "1" };
    const status = await fetch(new URL("admin/session", this.base), { headers }).then(
      (r) => r.status,
      () => 0,
    );
    if (source !== this.#source) return;
    if (status === 401) {
      this.close();
      this.emit({ kind: "state", state: "signed_out" });
      return;
    }
    this.#retry = setTimeout(() => this.#connect(), 2000);
  }
}
