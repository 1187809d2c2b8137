// The event stream, by `fetch`: EventSource cannot send the token. It is opened again until it ends
// with a final state.

import { RequestError } from './api.js';
import { backOff, onWake } from './connectivity.js';

/** The server sends a heartbeat every 15 s. A connection that is silent for longer is dead. */
const SILENCE_TIMEOUT = 40_000;
/** The age of the last byte from which a connection is not trusted after the device was asleep. */
const MAX_AGE_AFTER_SLEEP = 20_000;
/** The longest event in characters. */
const MAX_EVENT_LENGTH = 1 << 20;

/** Yields the events of a response as `{ id, data }`. Calls `onChunk` for everything that arrives. */
async function* readEvents(body, onChunk) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let [rest, id, data] = ['', null, []];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onChunk();
      rest += decoder.decode(value, { stream: true });
      if (rest.length > MAX_EVENT_LENGTH) throw new Error('an event is too long');
      const lines = rest.split('\n');
      rest = lines.pop();
      for (const line of lines.map(text => text.replace(/\r$/, ''))) {
        if (line === '') {
          if (data.length > 0) yield { id, data: data.join('\n') };
          data = [];
        } else if (line.startsWith('id:')) {
          id = line.slice(3).trim();
        } else if (line.startsWith('data:')) {
          data.push(line.slice(5).replace(/^ /, ''));
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Passes all events to `onEvent` until it returns true, across lost connections. `open` returns a
 * response with the events after an id. Throws a RequestError that is not temporary.
 */
export async function follow({ open, onEvent, onConnected, onLost }) {
  let lastId = '';
  for (let attempt = 0; ; attempt += 1) {
    const controller = new AbortController();
    let pause = 0;
    const abort = () => controller.abort();
    let lastChunk = Date.now();
    let watchdog = setTimeout(abort, SILENCE_TIMEOUT);
    const onChunk = () => {
      lastChunk = Date.now();
      clearTimeout(watchdog);
      watchdog = setTimeout(abort, SILENCE_TIMEOUT);
    };
    const stopWaiting = onWake(isReconnected => {
      if (isReconnected || Date.now() - lastChunk > MAX_AGE_AFTER_SLEEP) abort();
    });
    try {
      const response = await open(lastId, controller.signal);
      onChunk();
      onConnected();
      for await (const { id, data } of readEvents(response.body, onChunk)) {
        const event = JSON.parse(data);
        if (event.event === 'error') break;
        if (id) lastId = id;
        attempt = 0;
        if (onEvent(event)) return;
      }
    } catch (error) {
      if (error instanceof RequestError && !error.isTemporary) throw error;
      pause = error.pause ?? 0;
    } finally {
      clearTimeout(watchdog);
      stopWaiting();
      controller.abort();
    }
    // The end of a stream alone is no loss: a server that restarts is back at once.
    if (attempt > 0 || !navigator.onLine) onLost();
    await backOff(attempt, pause);
  }
}
