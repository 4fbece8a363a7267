/** Without the stream, live data is this old at most, if the gateway answers. */
export const pollEvery = 5000;

/** Polling reads live data while the stream sends none. */
export class Polling {
  #next: number | undefined;
  #reading = false;

  constructor(readonly read: () => Promise<void>) {}

  /**
   * update starts a read if one is due; call it more often than pollEvery. now is in milliseconds. A
   * failed read is dropped, because the page shows its age: a gateway that is away causes one request
   * per pollEvery and no message.
   */
  update(needed: boolean, now: number): void {
    if (!needed) {
      this.#next = undefined;
      return;
    }
    this.#next ??= now + pollEvery;
    if (now < this.#next || this.#reading) return;
    this.#next = now + pollEvery;
    this.#reading = true;
    void this.read()
      .catch(() => undefined)
      .finally(() => (this.#reading = false));
  }
}
