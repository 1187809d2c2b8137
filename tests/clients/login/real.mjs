// The page with the API of the server, where `flows::login_page` has started a login. `BERTH_TEST_LOGIN` has its
// link, and the scenario with its values as JSON.
import assert from 'node:assert/strict';
import { picture, runPages } from '../pages.mjs';
import { control, endpoint, heading, shown } from './harness.mjs';

const { url, user, password } = JSON.parse(process.env.BERTH_TEST_LOGIN);
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

/** Waits for the action that the person has to take, in the live view. */
async function act(page) {
  await shown(page, 'external');
  await page.getByText('Approve the login on your device.').waitFor();
  await page.frameLocator('iframe').locator('body[data-state=live]').waitFor();
  await picture(page, 'login-real-external');
}

await runPages(endpoint, { origin: control, start: 'about:blank', secrets: [password ?? WRONG] }, async open => {
  const page = await open();
  await page.goto(url);
  await (password ? signIn(page) : act(page));
});
