// The page with the API of the server, where `flows::login_page` has started a login. `BERTH_TEST_LOGIN` has its
// link, and the scenario with its values as JSON.
import assert from 'node:assert/strict';
import { picture, runPages } from '../pages.mjs';
import { control, endpoint, heading, shown } from './harness.mjs';

const { url, user, password, target } = JSON.parse(process.env.BERTH_TEST_LOGIN);
const WRONG = 'not-the-password';

/** Signs in with a password, after a wrong one. */
async function signIn(page) {
  const field = page.locator('input[type=password]');
  await page.locator('input[autocomplete=username]').fill(user);
  await field.fill(WRONG);
  await page.keyboard.press('Enter');
  await page.locator('.alert').waitFor();
  assert.equal(await field.inputValue(), '');
  await picture(page, 'login-real-rejected');
  await field.fill(password);
  await page.keyboard.press('Enter');
  await heading(page, 'You are signed in').waitFor();
  await page.reload();
  await heading(page, 'You are signed in').waitFor();
}

/** Waits for the action that the person has to take, and shows the site in the live view. */
async function watch(page) {
  await shown(page, 'external');
  await page.frameLocator('iframe').locator('body[data-state=live]').waitFor();
  await picture(page, 'login-real-external');
}

/** Clicks a place of the site's browser, as parts of its width and height, in the live view. */
async function click(page, [x, y]) {
  await watch(page);
  const screen = await page.frameLocator('iframe').locator('#screen').boundingBox();
  await page.mouse.click(screen.x + x * screen.width, screen.y + y * screen.height);
  await heading(page, 'You are signed in').waitFor();
}

async function approve(page) {
  await watch(page);
  await page.getByText('Approve the login on your device.').waitFor();
}

await runPages(endpoint, { origin: control, start: 'about:blank', secrets: [password ?? WRONG] }, async open => {
  const page = await open();
  await page.goto(url);
  if (password) await signIn(page);
  else await (target ? click(page, target) : approve(page));
});
