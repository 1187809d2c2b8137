// The entry of the bundle. It runs once, while the snapshot is created. BOOTSTRAP_JS in `engine.rs` reads the functions that it puts
// on `globalThis.__berth`.
import { startProcess as start } from './globals.ts';
import { Buffer } from './node/buffer.ts';
import * as fs from './node/fs.ts';
import { allowCalls, calls, pendingCalls } from './calls.ts';
import { framesOf, inspect } from './console.ts';
import { core, ops } from './host.ts';
import { describeHandle, writeResult } from './result.ts';
import { HostTransport } from './transport.ts';
import { bootPlaywright } from '../dist/core.mjs';

Object.defineProperty(globalThis, 'Buffer', { value: Buffer, writable: true, configurable: true, enumerable: false });

const playwright = bootPlaywright();
const toServer = (object: any) => playwright._connection.toImpl(object);
playwright._connection.scriptCalls = calls;
let browser: any;

/** Connects Playwright to the browser through the host. */
async function attach() {
  try {
    browser = await playwright.chromium.connectOverCDP(new HostTransport(), { noDefaults: true, artifactsDir: downloads() });
    // Sends files over the connection: the browser may run as another user, and must not open paths that a script chooses.
    toServer(browser)._isBrowserCollocatedWithServer = false;
    ops.op_attached();
  } catch (error) {
    fail(error);
  }
}

/** The directory of the downloads of this call. The agent links them there, from the one directory that the browser has for all. */
const downloads = () => `${ops.op_scratch_path()}/.downloads`;

/**
 * Subscribes to the browser's download events. The agent decides where downloads are saved. Another client of the browser may
 * have changed the setting, so a script subscribes when it starts and again when it listens for downloads. No need to wait: the
 * browser handles messages in order.
 */
function subscribeToDownloads() {
  const params = { behavior: 'allowAndName', downloadPath: downloads(), eventsEnabled: true };
  toServer(browser)._session.send('Browser.setDownloadBehavior', params).catch(() => {});
}

type Script = (...scope: unknown[]) => Promise<unknown>;
/** The names in scope of a script, in the order in which `run` passes their values. */
const scope = ['page', 'context', 'browser', 'playwright', 'fs'];

/**
 * Runs one compiled script and reports its end to the host. Its `page` is the tab of the CDP target, or a new tab for `null`;
 * with `undefined` the script uses nothing of the browser.
 */
async function run(script: Script, target: string | null | undefined) {
  try {
    allowCalls(true);
    const page = target === undefined ? undefined : await pageOf(target);
    const value = await script.call(undefined, page, page?.context(), browser, playwright, fs);
    writeResult(value);
    ops.op_succeeded();
  } catch (error) {
    fail(error);
  } finally {
    allowCalls(false);
    // `browser.close()` ends the connection, not the browser.
    if (browser?.isConnected() === false) ops.op_detached();
  }
}

function fail(thrown: unknown) {
  try {
    const { message, stack } = describeThrown(thrown);
    ops.op_failed(message, stack);
  } catch {
    ops.op_failed('the script threw something that cannot be described', '');
  }
}

function describeThrown(thrown: unknown) {
  if (!(thrown instanceof Error)) return { message: typeof thrown === 'string' ? thrown : inspect(thrown), stack: '' };
  const title = thrown.name && thrown.name !== 'Error' && !thrown.message.startsWith(thrown.name) ? `${thrown.name}: ` : '';
  const frames = framesOf(thrown);
  const cause = thrown.cause === undefined ? '' : `\n  [cause]: ${inspect(thrown.cause)}`;
  return { message: title + thrown.message, stack: `${thrown.name}: ${thrown.message}${frames ? `\n${frames}` : ''}${cause}` };
}

/** The time in milliseconds for a tab to appear after the agent has named it. */
const tabTimeout = 5_000;

async function pageOf(target: string | null): Promise<any> {
  subscribeToDownloads();
  if (target === null) return await browser.contexts()[0].newPage();
  const find = () => browser.contexts().flatMap((context: any) => context.pages()).find((page: any) => targetOf(page) === target);
  const existing = find();
  if (existing) return existing;
  const context = browser.contexts()[0];
  const deadline = Date.now() + tabTimeout;
  for (;;) {
    const remaining = deadline - Date.now();
    if (remaining <= 0) throw new Error('the tab of the script is gone');
    await context.waitForEvent('page', { timeout: remaining }).catch(() => {});
    const page = find();
    if (page) return page;
  }
}

/** Reports an uncaught error on standard error. The script continues. */
const reportUncaught = (title: string, error: unknown) => ops.op_output(2, `${title}: ${describeThrown(error).stack || inspect(error)}\n`);
core.setReportExceptionCallback((error) => reportUncaught('Uncaught', error));
core.setUnhandledPromiseRejectionHandler((_promise, reason) => {
  reportUncaught('Uncaught (in promise)', reason);
  return true;
});

const targetOf = (page: any): string | undefined => toServer(page)?.delegate?._targetId;

// Playwright's objects refer to the complete connection, so they print as their name.
const channelOwner = Object.getPrototypeOf(Object.getPrototypeOf(playwright.chromium));
const { on, addListener } = channelOwner;
Object.assign(channelOwner, { on: subscribing(on), addListener: subscribing(addListener) });
function subscribing(listen: (...args: unknown[]) => unknown) {
  return function (this: unknown, event: unknown, ...args: unknown[]) {
    if (event === 'download') subscribeToDownloads();
    return listen.call(this, event, ...args);
  };
}
Object.defineProperty(channelOwner, inspect.custom, {
  value(this: unknown) {
    return describeHandle(this);
  },
  configurable: true,
});

Object.defineProperty(globalThis, '__berth', { value: { start, attach, run, pendingCalls, scope }, configurable: true });
