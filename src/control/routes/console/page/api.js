// The client of the public API. The key is in the sessionStorage of this tab only, and is sent in a
// header, never in a URL.

const BASE = new URL('.', document.baseURI.split('#')[0]);
const REQUEST_TIMEOUT = 120_000;

export const PAGE_SIZE = 20;

/** An error response of the API, or a request that got no response. */
export class ApiError extends Error {
  constructor(status, { code, message, details } = {}, requestId = '') {
    super(message ?? `the server responded with status ${status}`);
    this.status = status;
    this.code = code ?? 'unknown';
    this.details = details ?? [];
    this.requestId = requestId;
  }

  /** Whether the server has no such route, as opposed to no such resource. */
  get isUnknownRoute() {
    return this.status === 404 && this.message === 'no such route';
  }
}

/** The caller: its key, and the project that requests are about. */
export const session = {
  /** Called when the server rejects the key. */
  onUnauthorized: () => {},
  /** The response of `/auth/context`. */
  context: null,

  get key() { return sessionStorage.getItem('key') ?? ''; },
  set key(key) { sessionStorage.setItem('key', key); },

  get project() { return sessionStorage.getItem('project') ?? this.context.project_id; },
  set project(id) { sessionStorage.setItem('project', id); },

  /** Whether the key is valid for all projects. */
  get isOrganizationWide() { return this.context.authorization.credential_scope.project_id === null; },

  clear() {
    sessionStorage.removeItem('key');
    sessionStorage.removeItem('project');
  },
};

/** Returns the path of a resource, with each segment escaped. */
export function path(...segments) {
  return segments.map(encodeURIComponent).join('/');
}

/**
 * Sends a request and returns its response. `project` sends the selected project along.
 * Throws an ApiError, or the reason of `signal`.
 */
export async function send(method, target, { query = {}, body, project = false, signal, key = session.key, timeout = REQUEST_TIMEOUT } = {}) {
  const url = new URL(target, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== '') url.searchParams.set(name, value);
  }
  const headers = new Headers({ Authorization: `Bearer ${key}` });
  if (body !== undefined) headers.set('Content-Type', 'application/json');
  if (project && session.isOrganizationWide) headers.set('X-Project-Id', session.project);
  const deadline = AbortSignal.timeout(timeout);
  let response;
  try {
    response = await fetch(url, {
      method, headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
      cache: 'no-store', credentials: 'omit', redirect: 'error',
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const message = deadline.aborted ? 'the server did not respond in time' : 'the server cannot be reached';
    throw new ApiError(0, { code: 'no_response', message });
  }
  if (response.ok) return response;
  const error = new ApiError(response.status, await response.json().catch(() => ({})), response.headers.get('X-Request-Id') ?? '');
  if (error.status === 401 && key === session.key) session.onUnauthorized(error);
  throw error;
}

/** Sends a request and returns the decoded body, or null if there is none. */
export async function call(method, target, options) {
  const response = await send(method, target, options);
  const text = await response.text();
  return text === '' ? null : JSON.parse(text);
}

/** Returns one page of a list: its items, and the offset or the token of the next page. */
export async function list(target, options) {
  const response = await send('GET', target, options);
  const hasMore = response.headers.get('X-Has-More') === 'true';
  return {
    items: await response.json(),
    next: hasMore ? Number(response.headers.get('X-Next-Offset')) : null,
    nextToken: hasMore ? response.headers.get('X-Next-Page-Token') : null,
  };
}
