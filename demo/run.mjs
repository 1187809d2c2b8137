// run.mjs BERTH: starts `berth dev`, creates a browser, runs script.ts in it, and prints the result.
import { spawn } from 'node:child_process';
import { createWriteStream, readFileSync, readdirSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { serveSite } from './site.mjs';

const berth = process.argv[2] ?? 'target/debug/berth';
const here = import.meta.dirname ?? new URL('.', import.meta.url).pathname;
const out = join(here, 'out');
const startTimeout = 60_000;
const shutdownTimeout = 20_000;

const table = [];
let currentStep = 'prepare';
let cleanups = [];

async function step(name, action) {
  currentStep = name;
  const start = performance.now();
  const value = await action();
  table.push({ step: name, ms: Math.round(performance.now() - start) });
  return value;
}

const withTimeout = (promise, ms, description) => {
  let timer;
  const limit = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`${description} took more than ${ms / 1000} s`)), ms); });
  return Promise.race([promise, limit]).finally(() => clearTimeout(timer));
};

async function startDev(stateDir) {
  // In its own process group, so that Ctrl-C reaches it only as the SIGTERM of `stop`.
  const dev = spawn(berth, ['dev', '--json', '--listen', '127.0.0.1:0', '--state-dir', stateDir], {
    detached: true, stdio: ['ignore', 'pipe', 'pipe'],
  });
  const log = createWriteStream(join(out, 'berth.log'));
  dev.stderr.pipe(log);
  const exited = new Promise(resolve => {
    dev.once('exit', (code, signal) => resolve(signal ?? `exit ${code}`));
    dev.once('error', error => resolve(error.message));
  });
  cleanups.push(() => stop(dev, exited));
  const line = once(createInterface({ input: dev.stdout }), 'line').then(([text]) => JSON.parse(text));
  const failed = exited.then(how => { throw new Error(`berth dev exited before it was ready (${how}); its log is ${out}/berth.log`); });
  return withTimeout(Promise.race([line, failed]), startTimeout, 'berth dev');
}

async function stop(dev, exited) {
  if (dev.exitCode !== null || dev.signalCode !== null || dev.pid === undefined) return;
  dev.kill('SIGTERM');
  try {
    await withTimeout(exited, shutdownTimeout, 'stopping berth dev');
  } catch (error) {
    dev.kill('SIGKILL');
    throw error;
  }
}

/** Returns the processes that use the state directory. There must be none at the end. */
function processesUsing(stateDir) {
  return readdirSync('/proc').filter(pid => /^\d+$/.test(pid) && Number(pid) !== process.pid).filter(pid => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(stateDir);
    } catch {
      return false; // exited meanwhile
    }
  });
}

function client({ base_url, api_key }) {
  return async (method, path, body) => {
    const response = await fetch(base_url + path, {
      method,
      headers: { authorization: `Bearer ${api_key}`, ...(body && { 'content-type': 'application/json' }) },
      body: body && JSON.stringify(body),
    });
    const text = await response.text();
    const value = text ? JSON.parse(text) : null;
    if (!response.ok) throw new Error(`${method} ${path} returned ${response.status}: ${value?.message ?? text}`);
    return value;
  };
}

async function demo() {
  await rm(out, { recursive: true, force: true });
  await mkdir(out, { recursive: true });
  const stateDir = await mkdtemp(join(tmpdir(), 'berth-demo-'));
  cleanups.push(() => rm(stateDir, { recursive: true, force: true }));
  const site = await serveSite();
  cleanups.push(() => site.close());

  const server = await step('start berth dev', () => startDev(stateDir));
  const call = client(server);
  const browser = await step('create a browser', () =>
    call('POST', '/browsers', { name: 'demo', start_url: site.url, viewport: { width: 1280, height: 800 } }));
  const code = await readFile(join(here, 'script.ts'), 'utf8');
  const response = await step('run the script', () =>
    call('POST', `/browsers/${browser.session_id}/automation/execute`, { code, timeout_sec: 60 }));
  if (!response.success) throw new Error(`${response.error} (at: ${response.stdout.trim().split('\n').at(-1)})`);
  const { screenshot, steps, ...result } = response.result;
  await writeFile(join(out, 'screenshot.png'), Buffer.from(screenshot, 'base64'));
  await writeFile(join(out, 'result.json'), JSON.stringify({ ...result, steps, stdout: response.stdout }, null, 2) + '\n');
  await step('delete the browser', () => call('DELETE', `/browsers/${browser.session_id}`));
  await step('stop berth dev', () => cleanups.pop()());
  const pids = processesUsing(stateDir);
  if (pids.length > 0) throw new Error(`processes were left behind: ${pids.join(', ')}`);

  print(steps, result);
}

function print(steps, result) {
  const row = (name, ms) => console.log(`  ${name.padEnd(42)}${String(ms).padStart(7)} ms`);
  console.log();
  for (const { step: name, ms } of table) {
    row(name, ms);
    if (name === 'run the script') steps.forEach(inner => row(`  · ${inner.step}`, inner.ms));
  }
  console.log(`\n  ${result.orders.length} orders, ${result.total} in total, file ${result.file}`);
  console.log('  demo/out/result.json and demo/out/screenshot.png show what the browser saw\n');
}

async function cleanUp() {
  // In reverse order. A failure must not prevent the others.
  for (const cleanup of cleanups.splice(0).reverse()) {
    try {
      await cleanup();
    } catch (error) {
      fail(error);
    }
  }
}

function fail(error) {
  const reason = String(error?.cause?.message ?? error?.message ?? error).split('\n')[0];
  if (!process.exitCode) console.error(`FAILED: ${currentStep}: ${reason}`);
  process.exitCode = 1;
}

for (const [signal, code] of [['SIGINT', 130], ['SIGTERM', 143]]) {
  process.once(signal, () => {
    process.exitCode = code;
    cleanUp().finally(() => process.exit(code));
  });
}

console.log('==> Running the demo');
try {
  await demo();
} catch (error) {
  fail(error);
}
await cleanUp();
