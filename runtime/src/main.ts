// The bundle's entry: it runs once, while the snapshot is made. What it leaves on `globalThis.__berth` is taken by the worker.
import { startClock } from './globals.ts';
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

/** Connects Playwright to the browser behind the host. */
async function attach() {
  try {
    startClock();
    browser = await playwright.chromium.connectOverCDP(new HostTransport(), { noDefaults: true, artifactsDir: downloads() });
    // Files go over the connection: the browser may run as another user, and must not be told to open paths of a script's choice.
    toServer(browser)._isBrowserCollocatedWithServer = false;
    ops.op_attached();
  } catch (error) {
    fail(error);
  }
}

/** Where scripts find the downloads of this call: the agent puts them there, from the one folder that the browser has for all. */
const downloads = () => `${ops.op_scratch_path()}/.downloads`;

/**
 * Has the browser tell us of downloads. The agent sees to it that they are saved, and where; a client of the browser may have
 * changed that since, so a script asks when it begins and again when it listens for downloads. Nobody needs to wait, the browser
 * takes messages in order.
 */
function claimDownloads() {
  const params = { behavior: 'allowAndName', downloadPath: downloads(), eventsEnabled: true };
  toServer(browser)._session.send('Browser.setDownloadBehavior', params).catch(() => {});
}

type Script = (...scope: unknown[]) => Promise<unknown>;
/** The names of what a script finds in scope, in the order in which `run` passes them. */
const scope = ['page', 'context', 'browser', 'playwright', 'fs'];

/**
 * Runs one compiled script and tells the host how it ended. Its `page` is the tab of that CDP target, a fresh one for `null`; a
 * script with `undefined` names nothing of the browser's.
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
    if (!browser.isConnected()) ops.op_detached();
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

/** How long a tab may take to show up after the agent has named it. */
const tabPatience = 5_000;

async function pageOf(target: string | null): Promise<any> {
  claimDownloads();
  if (target === null) return await browser.contexts()[0].newPage();
  const find = () => browser.contexts().flatMap((context: any) => context.pages()).find((page: any) => targetOf(page) === target);
  const found = find();
  if (found) return found;
  const context = browser.contexts()[0];
  const deadline = Date.now() + tabPatience;
  for (;;) {
    const remaining = deadline - Date.now();
    if (remaining <= 0) throw new Error('the tab that the script was to run in is gone');
    await context.waitForEvent('page', { timeout: remaining }).catch(() => {});
    const page = find();
    if (page) return page;
  }
}

/** What nobody caught: it is told, and the script goes on. */
const tell = (what: string, error: unknown) => ops.op_output(2, `${what}: ${describeThrown(error).stack || inspect(error)}\n`);
core.setReportExceptionCallback((error) => tell('Uncaught', error));
core.setUnhandledPromiseRejectionHandler((_promise, reason) => {
  tell('Uncaught (in promise)', reason);
  return true;
});

const targetOf = (page: any): string | undefined => toServer(page)?.delegate?._targetId;

// Playwright's objects are a graph of the whole connection; printed, they are their name.
const channelOwner = Object.getPrototypeOf(Object.getPrototypeOf(playwright.chromium));
const { on, addListener } = channelOwner;
Object.assign(channelOwner, { on: claiming(on), addListener: claiming(addListener) });
function claiming(listen: (...args: unknown[]) => unknown) {
  return function (this: unknown, event: unknown, ...args: unknown[]) {
    if (event === 'download') claimDownloads();
    return listen.call(this, event, ...args);
  };
}
Object.defineProperty(channelOwner, inspect.custom, {
  value(this: unknown) {
    return describeHandle(this);
  },
  configurable: true,
});

Object.defineProperty(globalThis, '__berth', { value: { attach, run, pendingCalls, scope }, configurable: true });
