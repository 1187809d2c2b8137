// The globals of scripts and of Playwright, beside those of the language itself.
import { core, loadWeb, ops } from './host.ts';
import { console } from './console.ts';

const define = (values: Record<string, unknown>) => {
  for (const [name, value] of Object.entries(values)) {
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }
};

const { URL, URLSearchParams } = loadWeb('00_url.js');
const { DOMException } = loadWeb('01_dom_exception.js');
const { Event, EventTarget, CustomEvent } = loadWeb('02_event.js');
const { structuredClone } = loadWeb('02_structured_clone.js');
const { AbortController, AbortSignal } = loadWeb('03_abort_signal.js');
const { atob, btoa } = loadWeb('05_base64.js');
const { TextDecoder, TextEncoder } = loadWeb('08_text_encoding.js');

// Timers as in Node: objects with `unref`. Each callback runs in the async context that created the timer.
class Timeout {
  constructor(readonly timer: object) {}
  ref() {
    core.refTimer(this.timer);
    return this;
  }
  unref() {
    core.unrefTimer(this.timer);
    return this;
  }
  hasRef() {
    return true;
  }
  [Symbol.toPrimitive]() {
    return idOf(this);
  }
}

const timers = new Map<number, Timeout>();
const ids = new WeakMap<Timeout, number>();
let lastId = 0;

// Most callers keep the object; a number is created only on request.
function idOf(timeout: Timeout): number {
  let id = ids.get(timeout);
  if (id === undefined) {
    id = ++lastId;
    ids.set(timeout, id);
    timers.set(id, timeout);
  }
  return id;
}

function inContext(callback: (...args: unknown[]) => void, args: unknown[]) {
  if (typeof callback !== 'function') throw new TypeError('The "callback" argument must be of type function.');
  const context = core.getAsyncContext();
  return () => {
    const previous = core.getAsyncContext();
    core.setAsyncContext(context);
    try {
      callback(...args);
    } finally {
      core.setAsyncContext(previous);
    }
  };
}

const milliseconds = (value: unknown) => Math.max(1, Math.min(Math.trunc(Number(value)) || 1, 2 ** 31 - 1));
const startTimer = (callback: () => void, ms: unknown, repeat: boolean) =>
  new Timeout(core.createTimer(callback, milliseconds(ms), undefined, repeat, true));

function clearTimer(handle: unknown) {
  const timeout = handle instanceof Timeout ? handle : timers.get(Number(handle));
  if (!timeout) return;
  timers.delete(ids.get(timeout) ?? -1);
  core.cancelTimer(timeout.timer);
}

class Immediate {
  _idleNext = null;
  _idlePrev = null;
  _destroyed = false;
  _argv = null;
  _onImmediate: () => void;
  constructor(callback: () => void) {
    this._onImmediate = callback;
    (this as Record<symbol, unknown>)[core.kRefed] = true;
  }
}

const exit = () => {
  throw new Error('process.exit() is not available in a script: return or throw instead');
};
const constant = (value: unknown) => () => value;
const hrtime = Object.assign(
  () => {
    const now = ops.op_clock();
    return [Math.floor(now / 1000), Math.round((now % 1000) * 1e6)];
  },
  { bigint: () => BigInt(Math.round(ops.op_clock() * 1e6)) },
);

const process: Record<string, unknown> = {
  env: {},
  argv: ['script'],
  execArgv: [],
  platform: 'linux',
  arch: 'x64',
  // Playwright reads the version of Node, although there is no Node.
  version: 'v20.0.0',
  versions: { node: '20.0.0' },
  pid: 1,
  cwd: () => ops.op_scratch_path(),
  exit,
  abort: exit,
  kill: exit,
  reallyExit: exit,
  chdir() {
    throw new Error('process.chdir() is not available in a script');
  },
  emit: constant(false),
  emitWarning() {},
  nextTick: (callback: (...args: unknown[]) => void, ...args: unknown[]) => queueMicrotask(inContext(callback, args)),
  hrtime,
  uptime: () => ops.op_clock() / 1000,
  umask: constant(0),
  memoryUsage: constant({ rss: 0, heapTotal: 0, heapUsed: 0, external: 0, arrayBuffers: 0 }),
  stdout: { isTTY: false, columns: 80, write: (text: unknown) => ops.op_output(1, String(text)) },
  stderr: { isTTY: false, columns: 80, write: (text: unknown) => ops.op_output(2, String(text)) },
};
for (const name of ['on', 'once', 'off', 'addListener', 'removeListener', 'removeAllListeners']) process[name] = constant(process);

let started = 0;
const performance = { now: () => ops.op_clock() - started, timeOrigin: 0, mark() {}, measure() {} };

/**
 * Starts the clock, the timers and the random numbers of this process. Those that it has from the snapshot and from the process
 * that it was forked from are the same in all others.
 */
export function startProcess() {
  startRandomNumbers();
  started = ops.op_clock();
  performance.timeOrigin = Date.now();
  // The clock of timers is not the one of the snapshot, whose next wake-up would keep later ones from being set.
  ops.op_timer_schedule(0);
}

/** Replaces `Math.random`, whose generator has the same state in all forks. The new one takes its numbers from the kernel. */
function startRandomNumbers() {
  const pool = new Uint32Array(256);
  let used = pool.length;
  const next = () => {
    if (used === pool.length) {
      getRandomValues(pool);
      used = 0;
    }
    return pool[used++];
  };
  // 53 bits, the precision of a number.
  const random = () => ((next() >>> 5) * 2 ** 26 + (next() >>> 6)) / 2 ** 53;
  Object.defineProperty(Math, 'random', { value: random, writable: true, configurable: true, enumerable: false });
}

const getRandomValues = (view: ArrayBufferView) => {
  ops.op_random(new Uint8Array(view.buffer, view.byteOffset, view.byteLength));
  return view;
};
const randomUUID = () => {
  const bytes = getRandomValues(new Uint8Array(16)) as Uint8Array;
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
};

define({
  URL,
  URLSearchParams,
  DOMException,
  Event,
  EventTarget,
  CustomEvent,
  structuredClone,
  AbortController,
  AbortSignal,
  atob,
  btoa,
  TextDecoder,
  TextEncoder,
  console,
  process,
  global: globalThis,
  self: globalThis,
  setTimeout: (callback: () => void, ms?: number, ...args: unknown[]) => startTimer(inContext(callback, args), ms, false),
  setInterval: (callback: () => void, ms?: number, ...args: unknown[]) => startTimer(inContext(callback, args), ms, true),
  clearTimeout: clearTimer,
  clearInterval: clearTimer,
  setImmediate: (callback: () => void, ...args: unknown[]) => {
    const immediate = new Immediate(inContext(callback, args));
    core.immediateRefCount(true);
    core.queueImmediate(immediate);
    return immediate;
  },
  clearImmediate: (immediate: unknown) => {
    if (immediate instanceof Immediate) core.clearImmediate(immediate);
  },
  performance,
  crypto: { getRandomValues, randomUUID },
  fetch: async () => {
    throw new Error(
      'fetch() is not available in a script: use page.request.fetch(…), or page.evaluate(() => fetch(…)) to fetch in the page',
    );
  },
});
