import { core } from '../host.ts';

/** Node's `AsyncLocalStorage`, built on the engine's async context, which promises, timers and immediates inherit. */
export class AsyncLocalStorage<T> {
  #variable = new core.AsyncVariable();

  getStore(): T | undefined {
    return this.#variable.get() as T | undefined;
  }

  run<R, A extends unknown[]>(store: T, callback: (...args: A) => R, ...args: A): R {
    const previous = this.#variable.enter(store);
    try {
      return callback(...args);
    } finally {
      core.setAsyncContext(previous);
    }
  }
}

export class AsyncResource {}
