// A browser at the login page. Usage of the programs: node login/NAME.mjs ENDPOINT CONTROL, with the DevTools
// URL of a browser and the URL of a server.
import { assertAccessible, picture, runPages } from '../pages.mjs';
import { CODE, FakeControl, TOKEN } from './fakes.mjs';

export const [endpoint, control] = process.argv.slice(2);

/** The password that the scenarios enter. */
export const ENTERED = 'correct horse 7$battery';

/**
 * Runs a scenario with a fake server and pages at its link. Fails if a page had an error, a violation of its
 * policy, or leaked the code, the token or the password.
 */
export async function run(scenario) {
  const fake = new FakeControl(control);
  const origin = await fake.start();
  try {
    await runPages(endpoint, { origin, start: fake.link, secrets: [CODE, TOKEN, ENTERED] }, open => scenario(open, fake));
  } finally {
    await fake.stop();
  }
}

/** Waits until a view of this kind is shown. */
export function shown(page, kind) {
  return page.locator(`#view[data-kind="${kind}"]`).waitFor();
}

export function heading(page, text) {
  return page.getByRole('heading', { level: 1, name: text, exact: true });
}

/** Checks the page with axe, and keeps an image of it. */
export async function check(page, name) {
  await assertAccessible(page, name);
  await picture(page, `login-${name}`, { fullPage: true });
}
