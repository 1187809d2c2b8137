// When to try again: after a growing delay, and at once when the connection is probably back.

const FIRST_DELAY = 500;
const MAX_DELAY = 15_000;

const listeners = new Set();

/**
 * Calls the listener when the device is awake again or has a network again, with whether open
 * connections are certainly lost. Returns a function that ends this.
 */
export function onWake(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function wake({ isReconnected = false } = {}) {
  for (const listener of [...listeners]) listener(isReconnected);
}

addEventListener('online', () => wake({ isReconnected: true }));
addEventListener('pageshow', event => wake({ isReconnected: event.persisted }));
document.addEventListener('visibilitychange', () => {
  if (document.visibilityState === 'visible') wake();
});

/**
 * Waits before the next attempt. The first one follows almost at once, unless the server asks for
 * `pause` milliseconds, which are not cut short.
 */
export function backOff(attempt, pause = 0) {
  const bound = Math.min(FIRST_DELAY * 2 ** attempt, MAX_DELAY);
  return new Promise(resolve => {
    const end = () => {
      clearTimeout(timer);
      stopWaiting();
      resolve();
    };
    const stopWaiting = pause > 0 ? () => {} : onWake(end);
    const timer = setTimeout(end, Math.max(pause, bound * (0.5 + Math.random() / 2)));
  });
}
