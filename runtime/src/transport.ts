import { ops } from './host.ts';

/** Playwright's end of the CDP connection. The agent holds the other end, and ends the worker if the browser disconnects. */
export class HostTransport {
  onmessage?: (message: object) => void;
  onclose?: () => void;
  #closed = false;

  constructor() {
    void this.#receive();
  }

  async #receive() {
    for (;;) {
      const messages = await ops.op_cdp_receive();
      if (this.#closed) return;
      // Delivers each message in a separate turn of the event loop, like a WebSocket: Playwright relies on promises settling in between.
      for (const message of messages) setImmediate(() => this.onmessage?.(JSON.parse(message)));
    }
  }

  send(message: object) {
    if (!this.#closed) ops.op_cdp_send(JSON.stringify(message));
  }

  close() {
    if (this.#closed) return;
    this.#closed = true;
    this.onclose?.();
  }
}
