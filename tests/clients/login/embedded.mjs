// The page in a frame of another site. The server permits the first of these origins, as in `flows::login_page`.
import assert from 'node:assert/strict';
import { ENTERED, run } from './harness.mjs';
import { credentials, success, verifying } from './states.mjs';

const [PERMITTED, OTHER] = ['http://localhost:4780', 'http://localhost:4781'];

/** Shows a page of an origin that embeds the login page. Nothing listens at the origin. */
async function embed(page, fake, origin) {
  const body = `<!doctype html><html lang="en"><title>Shop</title><iframe title="Sign in" src="${fake.link}" width="400" height="700"></iframe>`;
  // A page that comes from no address counts as one of the internet, which this machine is closed to.
  await page.context().grantPermissions(['local-network-access'], { origin });
  await page.route(`${origin}/**`, route => route.fulfill({ contentType: 'text/html', body }));
  await page.goto(origin);
}

await run(async (open, fake) => {
  fake.set(credentials());
  const page = await open({ url: 'about:blank' });
  await embed(page, fake, PERMITTED);
  const frame = page.frameLocator('iframe');
  await frame.getByLabel('Email').fill('jane@example.com');
  await frame.getByLabel('Password', { exact: true }).fill(ENTERED);
  await page.keyboard.press('Enter');
  assert.equal((await fake.submission()).field_values.field_1_2, ENTERED);
  fake.set(verifying());
  await frame.getByRole('heading', { name: 'Signing you in' }).waitFor();
  fake.set(success());
  await frame.getByRole('heading', { name: 'You are signed in' }).waitFor();
  // The token is in the storage of the frame, which survives its reload.
  await page.frames()[1].evaluate(() => location.reload());
  await frame.getByRole('heading', { name: 'You are signed in' }).waitFor();
  assert.equal(fake.requestsTo('POST', '/exchange').length, 1);
  assert.deepEqual(await page.frames()[1].evaluate(() => window.violations), []);

  // Another origin gets no page, and its frame exchanges no code.
  fake.reset();
  fake.set(credentials());
  const other = await open({ url: 'about:blank', allowedErrors: [/frame-ancestors/] });
  const refusal = other.waitForEvent('console', { predicate: message => message.text().includes('frame-ancestors') });
  await embed(other, fake, OTHER);
  await refusal;
  assert.equal(fake.requests.length, 0);
});
