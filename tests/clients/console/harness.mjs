// A browser at the console. Usage of the programs: node console/NAME.mjs ENDPOINT CONSOLE KEY, with the
// DevTools URL of a browser, the URL of the console and an API key of the organization.
import assert from 'node:assert/strict';
import { picture as keepPicture, runPages } from '../pages.mjs';

export const [endpoint, url, key] = process.argv.slice(2);

/** Runs a scenario in a browser. Fails if a page had an error, a violation of its policy, or leaked the key. */
export function run(scenario) {
  return runPages(endpoint, { origin: url, secrets: [key] }, scenario);
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

/** Keeps an image of the console. */
export function picture(page, name) {
  return keepPicture(page, `console-${name}`);
}
