// A server with the API of one auth connection, whose states a test sets. The login page itself is that of
// the real server, with its headers.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';

export const CONNECTION = 'conn_01kgc3v7e8r9t0w1x2y3z4a5b6';
export const CODE = 'handoff_9f2c5d1e7a';
export const TOKEN = 'header.claims-5e88f1.signature';
const LIVE_VIEW = '/browsers/brw_01kgc3v7e8r9t0w1x2y3z4a5b6/live';

export class FakeControl {
  /** The record of the connection, without its flow. */
  connection = { id: CONNECTION, domain: 'shop.example.com', status: 'NEEDS_AUTH', save_credentials: true, record_session: false };
  /** All requests to the API: method, path, headers, body. */
  requests = [];
  /** Whether the code has been exchanged. */
  isCodeSpent = false;
  /** Whether the token is rejected. */
  isTokenExpired = false;
  /** Responses to the next submissions, instead of 202: status, body, and a state that precedes it. */
  submitResponses = [];
  /** Exchanges that are refused with 429. */
  refusedExchanges = 0;
  /** Whether the connection is deleted. */
  isDeleted = false;
  /** Whether requests to the API get no response. */
  isUnreachable = false;
  /** How far the clock of the server is ahead, in milliseconds. */
  clockAhead = 0;
  /** Fields of the record whose event is not sent. */
  recordOnly = {};
  /** How many URLs of the live view have been issued. Each has another token. */
  liveViews = 0;
  /** How many logins there were before. */
  #earlierFlows = 0;
  #control;
  #server = http.createServer((request, response) => this.#respond(request, response).catch(error => {
    this.error ??= error;
    response.destroy();
  }));
  #events = [];
  #readers = new Set();
  #submissions = [];
  #waiting = [];

  constructor(control) {
    this.#control = control;
  }

  /** Starts the server and returns its base URL. */
  async start() {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    this.origin = `http://127.0.0.1:${this.#server.address().port}`;
    return this.origin;
  }

  async stop() {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
    if (this.error) throw this.error;
  }

  /** The URL that the person receives. */
  get link() { return `${this.origin}/login/${CONNECTION}#code=${CODE}`; }

  /** Returns a URL of the live view, as each response has another one. */
  liveViewUrl() {
    this.liveViews += 1;
    return `${this.origin}${LIVE_VIEW}?jwt=header.live-${this.liveViews}.signature`;
  }

  /** Returns the id of an event. */
  eventId(number) { return `flow_0${this.#earlierFlows}kgc3v7e8r9t0w1x2y3z4a5b6:${number}`; }

  /** Begins another login, whose events have other ids. */
  beginFlow() {
    this.#earlierFlows += 1;
    this.#events = [];
  }

  get readers() { return this.#readers.size; }

  /** Returns to the first state: a connection without a flow, and a code that is not spent. */
  reset() {
    Object.assign(this, { requests: [], isCodeSpent: false, isTokenExpired: false, isDeleted: false, isUnreachable: false, submitResponses: [], refusedExchanges: 0, clockAhead: 0, recordOnly: {} });
    this.connection = { ...new FakeControl(this.#control).connection };
    this.#events = [];
    this.dropReaders();
  }

  /** Sets the state of the flow, and sends it to the readers. */
  set(state) {
    const event = { event: 'managed_auth_state', timestamp: new Date().toISOString(), flow_type: 'LOGIN', ...state };
    this.#events.push({ id: this.eventId(this.#events.length + 1), data: event });
    for (const reader of this.#readers) this.#write(reader, this.#events.at(-1));
  }

  /** Sends an event that is no state, and so has no id. */
  sendOther(data) {
    for (const reader of this.#readers) this.#write(reader, { data: { timestamp: new Date().toISOString(), ...data } });
  }

  /** Ends all event streams without a final state. */
  dropReaders() {
    for (const reader of this.#readers) reader.destroy();
  }

  /** Resolves with the body of the next submission. */
  submission() {
    if (this.#submissions.length > 0) return Promise.resolve(this.#submissions.shift());
    return new Promise(resolve => this.#waiting.push(resolve));
  }

  /** Returns the requests of a method below the path of the connection. */
  requestsTo(method, action) {
    return this.requests.filter(request => request.method === method && request.action === action);
  }

  #write(reader, { id, data }) {
    const lines = [`data: ${JSON.stringify(data)}`, ...(id ? [`id: ${id}`] : [])];
    reader.write(`${lines.join('\n')}\n\n`);
    if (data.event === 'error' || ['SUCCESS', 'FAILED', 'EXPIRED', 'CANCELED'].includes(data.flow_status)) reader.end();
  }

  async #respond(request, response) {
    const url = new URL(request.url, this.origin);
    response.setHeader('date', new Date(Date.now() + this.clockAhead).toUTCString());
    if (url.pathname.startsWith('/login/')) return this.#forward(request, url, response);
    if (url.pathname === LIVE_VIEW) return this.#showLiveView(response);
    const [, id, action] = url.pathname.match(/^\/auth\/connections\/([^/]+)(\/\w+)?$/) ?? [];
    assert.ok(id, `unexpected request: ${request.method} ${request.url}`);
    if (this.isUnreachable) return response.destroy();
    const body = Buffer.concat(await request.toArray()).toString();
    const call = { method: request.method, action: action ?? '', headers: request.headers, body: body === '' ? undefined : JSON.parse(body) };
    this.requests.push(call);
    if (id !== CONNECTION) return this.#send(response, 404, { code: 'not_found' });
    const route = `${call.method} ${call.action}`;
    if (route === 'POST /exchange') return this.#exchange(call, response);
    if (this.isDeleted) return this.#send(response, 404, { code: 'not_found' });
    if (call.headers.authorization !== `Bearer ${TOKEN}` || this.isTokenExpired) return this.#send(response, 401, { code: 'unauthorized' });
    if (route === 'GET ') return this.#send(response, 200, { ...this.connection, ...this.#flow(), ...this.recordOnly });
    if (route === 'GET /events') return this.#stream(call, response);
    if (route === 'POST /submit') return this.#submit(call, response);
    if (route === 'POST /cancel') {
      this.set({ flow_status: 'CANCELED', flow_step: 'COMPLETED', who: 'none', error_code: 'canceled', error_message: 'the login was canceled' });
      return this.#send(response, 200, { ...this.connection, ...this.#flow() });
    }
    assert.fail(`unexpected request: ${route}`);
  }

  #flow() {
    if (this.#events.length === 0) return {};
    const { event, timestamp, ...flow } = this.#events.at(-1).data;
    const ends = { EXPIRED: { flow_step: 'EXPIRED' } };
    return { flow_expires_at: new Date(Date.now() + 19 * 60_000).toISOString(), ...flow, ...ends[flow.flow_status] };
  }

  #exchange({ headers, body }, response) {
    assert.equal(headers.authorization, `Bearer ${body.code}`);
    if (this.refusedExchanges > 0) {
      this.refusedExchanges -= 1;
      response.setHeader('retry-after', '1');
      return this.#send(response, 429, { code: 'limit_exceeded' });
    }
    if (body.code !== CODE || this.isCodeSpent) return this.#send(response, 401, { code: 'invalid_handoff_code' });
    this.isCodeSpent = true;
    return this.#send(response, 200, { jwt: TOKEN });
  }

  #submit({ body }, response) {
    const [status, error, state] = this.submitResponses.shift() ?? [202];
    if (state) this.set(state);
    const waiting = this.#waiting.shift();
    if (waiting) waiting(body);
    else this.#submissions.push(body);
    return this.#send(response, status, error ?? { accepted: true });
  }

  #stream({ headers }, response) {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store, no-transform' });
    response.write(': open\n\n');
    this.#readers.add(response);
    response.on('close', () => this.#readers.delete(response));
    const lastId = headers['last-event-id'];
    const known = this.#events.findIndex(event => event.id === lastId);
    if (lastId && known === -1) this.#write(response, { data: { event: 'reset', timestamp: new Date().toISOString() } });
    const pending = known === -1 ? this.#events.slice(-1) : this.#events.slice(known + 1);
    for (const event of pending) this.#write(response, event);
  }

  #showLiveView(response) {
    response.writeHead(200, { 'content-type': 'text/html', 'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'" });
    response.end('<!doctype html><html lang="en"><title>Live view</title><body style="margin:0;background:#2a3550;color:#fff;font:20px sans-serif"><main><h1>Live view</h1><p>Are you a robot?</p></main>');
  }

  #send(response, status, body) {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
  }

  async #forward(request, url, response) {
    const headers = request.headers['if-none-match'] ? { 'if-none-match': request.headers['if-none-match'] } : {};
    const answer = await fetch(new URL(url.pathname, this.#control), { method: request.method, headers });
    const kept = ['content-type', 'content-security-policy', 'cache-control', 'etag', 'referrer-policy', 'x-content-type-options'];
    response.writeHead(answer.status, Object.fromEntries(kept.map(name => [name, answer.headers.get(name)]).filter(([, value]) => value !== null)));
    response.end(Buffer.from(await answer.arrayBuffer()));
  }
}
