import { ops } from './host.ts';

/** Playwright's end of the CDP connection. The agent holds the browser's. */
export class HostTransport {
  onmessage?: (message: object) => void;
  onclose?: (reason?: string) => void;
  #closed = false;

  constructor() {
    void this.#receive();
  }

  async #receive() {
    for (;;) {
      const messages = await ops.op_cdp_receive();
      if (messages === null || this.#closed) break;
      // One turn of the event loop each, as from a WebSocket: Playwright counts on its promises to settle in between.
      for (const message of messages) setImmediate(() => this.onmessage?.(JSON.parse(message)));
    }
    if (!this.#closed) {
      this.#closed = true;
      this.onclose?.(ops.op_cdp_closed_reason());
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
