// A browser at the console. Usage of the programs: node console/NAME.mjs ENDPOINT CONSOLE KEY, with the
// DevTools URL of a browser, the URL of the console and an API key of the organization.
import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { chromium } from 'playwright-core';

export const [endpoint, url, key] = process.argv.slice(2);

/** Runs a scenario in a browser. Fails if a page had an error, a violation of its policy, or leaked the key. */
export async function run(scenario) {
  const browser = await chromium.connectOverCDP(endpoint);
  const problems = [];
  const open = async (options = {}) => {
    const { allowedErrors = [], ...contextOptions } = options;
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...contextOptions });
    context.setDefaultTimeout(60_000);
    await context.addInitScript(() => {
      window.violations = [];
      document.addEventListener('securitypolicyviolation', event => violations.push(`${event.violatedDirective} ${event.blockedURI}`));
    });
    const page = await context.newPage();
    page.on('console', message => {
      if (['error', 'warning'].includes(message.type()) && !allowedErrors.some(allowed => allowed.test(message.text()))) {
        problems.push(`${message.type()}: ${message.text()} (${message.location().url})`);
      }
    });
    page.on('pageerror', error => problems.push(error.stack));
    page.on('request', request => {
      if (request.url().includes(key)) problems.push(`the key is in ${request.url()}`);
    });
    await page.goto(url);
    return page;
  };
  try {
    await scenario(open);
    for (const context of browser.contexts()) {
      for (const page of context.pages()) {
        if (page.url().startsWith(url)) assert.deepEqual(await page.evaluate(() => window.violations ?? []), []);
      }
    }
    assert.deepEqual(problems, []);
  } finally {
    for (const context of browser.contexts().slice(1)) await context.close();
    await browser.close();
  }
}

export async function signIn(page, apiKey = key) {
  await page.getByLabel('API key').fill(apiKey);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await loaded(page);
}

/** Waits until the view has shown its data. */
export async function loaded(page) {
  await page.locator('#main h1').waitFor();
  await page.waitForFunction(() => !document.querySelector('#main [aria-busy], #main [role=status]'));
}

/** Opens a view by its hash. */
export async function visit(page, hash) {
  await page.evaluate(target => { location.hash = target; }, hash);
  await page.waitForFunction(target => location.hash === target, hash);
  await loaded(page);
}

/** Sends a request to the API, outside of the browser. */
export async function api(method, path, body) {
  const response = await fetch(new URL(path, url), {
    method,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: body && JSON.stringify(body),
  });
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${response.ok ? '' : await response.text()}`);
  return response.status === 204 ? null : response.json();
}

export async function announced(page, text) {
  await page.locator('#status').getByText(text).waitFor();
}

/** Clicks a button of the open dialog. */
export async function inDialog(page, button) {
  await page.getByRole('dialog').or(page.getByRole('alertdialog')).getByRole('button', { name: button, exact: true }).click();
}

/** Keeps an image of the page in the directory that `BERTH_TEST_PICTURES` names. */
export async function picture(page, name) {
  const directory = process.env.BERTH_TEST_PICTURES;
  if (!directory) return;
  await mkdir(directory, { recursive: true });
  await page.screenshot({ path: `${directory}/console-${name}.png` });
}
