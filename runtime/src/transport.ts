import { ops } from './host.ts';

/** Playwright's end of the CDP connection. The agent holds the browser's, and ends the worker where the browser goes away. */
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
      // One turn of the event loop each, as from a WebSocket: Playwright counts on its promises to settle in between.
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
