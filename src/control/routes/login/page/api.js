// The public API, as far as the token of this page permits it.

import { connectionId, session } from './session.js';

/** The base URL of the server, also below the path of a proxy. */
const BASE = new URL('..', location.href);
const REQUEST_TIMEOUT = 30_000;
const MAX_PAUSE = 600_000;

/** How far the clock of the server is ahead of that of this device, in milliseconds. */
let clockOffset = 0;

/** Returns the time of the server. */
export function serverTime() {
  return Date.now() + clockOffset;
}

/** An error response, or a request without a response, whose status is 0. */
export class RequestError extends Error {
  constructor(status, { code, details } = {}, pause = 0) {
    super(`status ${status}`);
    this.status = status;
    /** The time to wait before another attempt, in milliseconds. */
    this.pause = pause;
    this.code = code ?? '';
    this.details = Array.isArray(details) ? details : [];
  }

  /** Whether the same request may succeed later. */
  get isTemporary() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** Sends a request about the connection. Throws a RequestError, or what `signal` is aborted with. */
export async function send(method, action, { body, bearer = session.token, signal, headers = {}, timeout = REQUEST_TIMEOUT } = {}) {
  const controller = new AbortController();
  const abort = () => controller.abort();
  const timer = setTimeout(abort, timeout);
  signal?.addEventListener('abort', abort);
  let response;
  try {
    response = await fetch(new URL(`auth/connections/${encodeURIComponent(connectionId)}${action}`, BASE), {
      method,
      headers: {
        Authorization: `Bearer ${bearer}`,
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: controller.signal,
      cache: 'no-store', credentials: 'omit', redirect: 'error',
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new RequestError(0);
  } finally {
    clearTimeout(timer);
  }
  const date = Date.parse(response.headers.get('Date') ?? '');
  if (!Number.isNaN(date)) clockOffset = date - Date.now();
  if (response.ok) return response;
  const pause = Math.min(Number(response.headers.get('Retry-After')) * 1000 || 0, MAX_PAUSE);
  throw new RequestError(response.status, await response.json().catch(() => ({})), pause);
}

/** Exchanges the code of the link for a token. */
export async function exchange(code) {
  const response = await send('POST', '/exchange', { body: { code }, bearer: code });
  const { jwt } = await response.json();
  return jwt;
}

export async function getConnection() {
  const response = await send('GET', '');
  return response.json();
}

export async function submit(body) {
  await send('POST', '/submit', { body });
}

export async function cancel() {
  await send('POST', '/cancel');
}

/** Opens the stream of events that follow the one with the id, or of the present state on. */
export function openEvents(lastId, signal) {
  const headers = { Accept: 'text/event-stream', ...(lastId ? { 'Last-Event-ID': lastId } : {}) };
  return send('GET', '/events', { headers, signal });
}
