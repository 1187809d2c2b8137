// A transport for Playwright's connectOverCDP over a resumable DevTools connection, in the protocol of docs/websockets.md.
// As a program: node resumable.mjs ENDPOINT SITE LOSSES; loses the connection LOSSES times while Playwright works, and prints
// the results as one line of JSON. With `input` in place of LOSSES, it prints `working` and works until it reads a line.
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import utils from 'playwright-core/lib/utilsBundle';

const PROTOCOL = 'berth.resume.v1';
const ACK_MESSAGES = 32;
const ACK_BYTES = 256 * 1024;
const NORMAL = 1000;
// The codes after which the connection may go on: the server or control stops, control lost the agent, or there was no Close frame.
const LOSSES = [1001, 1006, 1011];
// In milliseconds: the time between two attempts to resume, that of a handshake, and that of silence after which the network is lost.
const RETRY = 100;
const HANDSHAKE = 10_000;
const SILENCE = 25_000;
const { ws: WebSocket } = utils;

export class ResumableTransport {
  onmessage;
  onclose;
  #endpoint;
  #socket;
  #id = 'new';
  #sent = 0;
  #received = 0;
  // What the server has not acknowledged, as [number, text].
  #unacknowledged = [];
  #sinceAck = { messages: 0, bytes: 0 };
  #isGreeted = false;
  #isClosing = false;
  #isEnded = false;
  #silence;
  #deadline = Infinity;
  #windowMs = 0;

  constructor(endpoint) {
    this.#endpoint = endpoint;
    this.#connect();
  }

  send(message) {
    const text = JSON.stringify(message);
    this.#unacknowledged.push([++this.#sent, text]);
    if (this.#isGreeted) this.#socket.send(`${this.#sent} ${text}`);
  }

  /** Ends the connection, once there is a WebSocket for that. */
  close() {
    this.#isClosing = true;
    if (this.#isGreeted) this.#socket.close(NORMAL);
    this.#end();
  }

  /** Loses the network: the connection breaks without a Close frame. */
  lose() {
    this.#socket.terminate();
  }

  #connect() {
    const url = new URL(this.#endpoint);
    url.searchParams.set('resume', this.#id);
    if (this.#id !== 'new') url.searchParams.set('received', String(this.#received));
    const socket = new WebSocket(url.href, PROTOCOL, { maxPayload: 2 ** 30, handshakeTimeout: HANDSHAKE });
    this.#socket = socket;
    this.#isGreeted = false;
    socket.on('message', data => {
      this.#onSign(socket);
      if (socket === this.#socket) this.#onText(String(data));
    });
    socket.on('ping', () => this.#onSign(socket));
    socket.on('error', () => {});
    socket.on('close', code => {
      if (socket !== this.#socket) return;
      clearTimeout(this.#silence);
      this.#isGreeted = false;
      // Before the first greeting there is nothing to resume.
      const isLost = LOSSES.includes(code) && this.#id !== 'new';
      if (this.#deadline === Infinity) this.#deadline = Date.now() + this.#windowMs;
      if (isLost && Date.now() < this.#deadline) setTimeout(() => this.#connect(), RETRY);
      else this.#end();
    });
  }

  #onSign(socket) {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => socket.terminate(), SILENCE);
  }

  #onText(text) {
    if (!this.#isGreeted) {
      const { id, received, window_seconds } = JSON.parse(text);
      this.#id = id;
      this.#windowMs = window_seconds * 1000;
      this.#deadline = Infinity;
      this.#isGreeted = true;
      this.#forget(received);
      if (this.#isClosing) {
        this.#socket.close(NORMAL);
        return;
      }
      for (const [number, message] of this.#unacknowledged) this.#socket.send(`${number} ${message}`);
      return;
    }
    const space = text.indexOf(' ');
    if (text.startsWith('ack ')) {
      this.#forget(Number(text.slice(space + 1)));
      return;
    }
    this.#received = Number(text.slice(0, space));
    this.#sinceAck.messages++;
    this.#sinceAck.bytes += text.length;
    if (this.#sinceAck.messages >= ACK_MESSAGES || this.#sinceAck.bytes >= ACK_BYTES) {
      this.#sinceAck = { messages: 0, bytes: 0 };
      this.#socket.send(`ack ${this.#received}`);
    }
    const message = JSON.parse(text.slice(space + 1));
    // Playwright expects each message in a turn of its own.
    setImmediate(() => this.onmessage?.(message));
  }

  #forget(number) {
    while (this.#unacknowledged.length && this.#unacknowledged[0][0] <= number) this.#unacknowledged.shift();
  }

  #end() {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.onclose?.();
  }
}

/** Counts in the page until a line is read. Fails if a call is lost or made twice. */
async function countUntilInput(page) {
  let isOver = false;
  process.stdin.once('data', () => (isOver = true));
  const finished = page.evaluate(() => new Promise(resolve => (globalThis.finish = resolve)));
  console.log('working');
  let calls = 0;
  while (!isOver) {
    const count = await page.evaluate(() => (globalThis.count = (globalThis.count ?? 0) + 1));
    if (count !== ++calls) throw new Error(`call ${calls} was counted as ${count}`);
  }
  await page.evaluate(() => globalThis.finish('finished'));
  if (await finished !== 'finished') throw new Error('the first call is lost');
  process.stdin.destroy();
  return calls;
}

async function work(endpoint, site, losses) {
  const transport = new ResumableTransport(endpoint);
  const browser = await chromium.connectOverCDP(transport);
  const context = await browser.newContext();
  const page = await context.newPage();
  const lines = [];
  page.on('console', message => {
    if (message.text().startsWith('line')) lines.push(message.text());
  });
  await page.goto(site);
  const results = [];
  if (losses === 'input') results.push(await countUntilInput(page));
  for (let loss = 0; loss < losses; loss++) {
    // A call that is under way, and calls that are made while there is no connection.
    const pending = page.evaluate(n => new Promise(resolve => setTimeout(() => {
      console.log(`line ${n}`);
      resolve(n);
    }, 50)), loss);
    transport.lose();
    results.push(await pending, await page.evaluate(n => n + 0.5, loss));
  }
  await page.fill('#name', 'Ada');
  await page.click('#greet');
  const greeting = await page.textContent('#greeting');
  const title = await page.title();
  await context.close();
  await browser.close();
  return { greeting, title, results, lines };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [endpoint, site, losses] = process.argv.slice(2);
  console.log(JSON.stringify(await work(endpoint, site, losses === 'input' ? losses : Number(losses))));
}
