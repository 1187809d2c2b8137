// The part of Node's HTTP client that Playwright's `request` uses. The agent performs the requests. It sends a request once its
// body is complete, and a response is passed on once its body is complete and decompressed.
import { EventEmitter } from 'events';
import { Buffer } from './buffer.ts';
import { type HttpResponse, ops } from '../host.ts';
import { nodeError } from '../node_error.ts';

interface Options {
  method?: string;
  headers?: Record<string, string | string[]>;
  rejectUnauthorized?: boolean;
  cert?: unknown;
  pfx?: unknown;
}

/** Connections are the agent's, so there is nothing to configure or to close. */
export class Agent {
  destroy() {}
}

export const request = (url: URL, options: Options, onResponse: (response: IncomingMessage) => void) =>
  new ClientRequest(url, options, onResponse);

class ClientRequest extends EventEmitter {
  #body: Uint8Array[] = [];
  #exchange?: number;
  #isClosed = false;

  constructor(
    readonly url: URL,
    readonly options: Options,
    readonly onResponse: (response: IncomingMessage) => void,
  ) {
    super();
    if (options.cert || options.pfx) throw new Error('client certificates are not available in a script');
  }

  write(bytes: Uint8Array) {
    this.#body.push(bytes);
    return true;
  }

  end() {
    void this.#perform().catch((error) => {
      if (this.#isClosed) return;
      this.emit('error', nodeError(error));
      this.destroy();
    });
  }

  destroy() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (this.#exchange !== undefined) ops.op_http_cancel(this.#exchange);
    this.emit('close');
  }

  async #perform() {
    const { method = 'GET', rejectUnauthorized } = this.options;
    const { url, headers } = withoutCredentials(this.url, this.options.headers ?? {});
    const request = { method, url, headers, insecure: rejectUnauthorized === false };
    const exchange = (this.#exchange = ops.op_http_send(request, Buffer.concat(this.#body)));
    this.#body = [];
    this.emit('finish');
    const head = await ops.op_http_head(exchange);
    this.emit('socket', new Socket(head));
    this.onResponse(new IncomingMessage(head, () => this.#receive(exchange)));
  }

  async #receive(exchange: number) {
    try {
      return await ops.op_http_body(exchange);
    } finally {
      this.#exchange = undefined;
      // After the response has handled the body.
      setImmediate(() => this.destroy());
    }
  }
}

/** Converts credentials in the URL to a header, as Node does. */
function withoutCredentials(given: URL, headers: Record<string, string | string[]>) {
  const url = new URL(given);
  const { username, password } = url;
  url.username = url.password = '';
  const list = Object.entries(headers).flatMap(([name, value]) => [value].flat().map((one): [string, string] => [name, bytesOf(one)]));
  if ((username || password) && !list.some(([name]) => name.toLowerCase() === 'authorization')) {
    const credentials = Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString('base64');
    list.push(['authorization', `Basic ${credentials}`]);
  }
  return { url: url.href, headers: list };
}

/** Returns a header's value, whose characters stand for bytes. */
function bytesOf(value: unknown): string {
  const text = String(value);
  if (/[^\0-\xff]/.test(text)) throw new TypeError('EINVAL: invalid character in the value of a header');
  return text;
}

/** The connection, of which only the server's address is known. */
class Socket extends EventEmitter {
  readonly destroyed = true;
  readonly remoteAddress?: string;
  readonly remotePort?: number;
  constructor({ address, port }: HttpResponse) {
    super();
    if (address === null) return;
    this.remoteAddress = address;
    this.remotePort = port;
  }
}

/** The headers of which Node keeps the first, as a second one would be an error. */
const single = new Set(
  ['age', 'authorization', 'content-length', 'content-type', 'etag', 'expires', 'from', 'host', 'if-modified-since', 'if-unmodified-since']
    .concat(['last-modified', 'location', 'max-forwards', 'proxy-authorization', 'referer', 'retry-after', 'server', 'user-agent']),
);

export class IncomingMessage extends EventEmitter {
  readonly httpVersion: string;
  readonly statusCode: number;
  readonly statusMessage: string;
  readonly headers: Record<string, string | string[]> = {};
  readonly rawHeaders: string[] = [];
  readonly url = '';
  #receive: () => Promise<Uint8Array>;
  #isRead = false;

  constructor(head: HttpResponse, receive: () => Promise<Uint8Array>) {
    super();
    this.httpVersion = head.version;
    this.statusCode = head.status;
    this.statusMessage = head.reason;
    for (const [name, value] of head.headers) this.#addHeader(name, value);
    this.#receive = receive;
  }

  #addHeader(name: string, value: string) {
    this.rawHeaders.push(name, value);
    const { headers } = this;
    if (name === 'set-cookie') ((headers[name] ??= []) as string[]).push(value);
    else if (headers[name] === undefined) headers[name] = value;
    else if (!single.has(name)) headers[name] += `${name === 'cookie' ? '; ' : ', '}${value}`;
  }

  /** As in Node, the body is read once something listens for it. */
  override on(event: string, listener: (...args: any[]) => void): this {
    super.on(event, listener);
    if (event === 'data' && !this.#isRead) {
      this.#isRead = true;
      void this.#read();
    }
    return this;
  }

  async #read() {
    try {
      const body = await this.#receive();
      if (body.length) this.emit('data', Buffer.from(body.buffer, body.byteOffset, body.byteLength));
      this.emit('end');
    } catch (error) {
      this.emit('error', nodeError(error));
    }
  }
}
