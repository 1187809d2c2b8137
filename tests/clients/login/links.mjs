// Links that are new, used, incomplete or opened again, and tokens that end.
import assert from 'node:assert/strict';
import { CODE, TOKEN } from './fakes.mjs';
import { ENTERED, heading, run, shown } from './harness.mjs';
import * as states from './states.mjs';

const ALLOWED = { allowedErrors: [/status of 40[14]/, /ERR_/] };
const storage = page => page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }, document.cookie]));

await run(async (open, fake) => {
  // The fragment is gone before the exchange, which happens once. A failed exchange is repeated.
  fake.isUnreachable = true;
  fake.set(states.credentials());
  const page = await open(ALLOWED);
  await shown(page, 'checking');
  await page.locator('#offline').waitFor();
  assert.equal(page.url(), fake.link.split('#')[0]);
  assert.ok((await storage(page)).includes(CODE));
  fake.isUnreachable = false;
  // The code also survives a reload before its exchange.
  await page.reload();
  await shown(page, 'form');
  assert.ok(!(await storage(page)).includes(CODE));
  assert.ok((await storage(page)).includes(TOKEN));
  assert.equal(fake.requestsTo('POST', '/exchange').length, 1);

  // What the person enters is in no storage and in no address, also after it is sent.
  await page.getByLabel('Password', { exact: true }).fill(ENTERED);
  await page.getByLabel('Email').fill('jane@example.com');
  assert.ok(!(await storage(page)).includes(ENTERED));
  await page.keyboard.press('Enter');
  await fake.submission();
  assert.ok(!/correct|jane/.test(await storage(page)));
  assert.equal(page.url(), fake.link.split('#')[0]);

  // The used link in another tab explains that it is used, and how to get another one.
  const other = await open(ALLOWED);
  await heading(other, 'This link was already used or has expired').waitFor();
  await other.getByText('go back to where you got the link').waitFor();
  assert.equal(await other.getByRole('button').count(), 0);
  // The tab that has used it continues with its token.
  const continued = await open({ ...ALLOWED, url: fake.link });
  await shown(continued, 'spent');
  await page.evaluate(code => { location.hash = `code=${code}`; }, CODE);
  await page.waitForFunction(() => location.hash === '');
  await shown(page, 'form');

  // A new link for the same connection in the same tab is used at once.
  fake.isCodeSpent = false;
  const before = fake.requestsTo('POST', '/exchange').length;
  await page.evaluate(code => { location.hash = `code=${code}`; }, CODE);
  await page.waitForFunction(() => location.hash === '' && document.querySelector('#view[data-kind=form]'));
  assert.equal(fake.requestsTo('POST', '/exchange').length, before + 1);

  // The connection is deleted while its login is shown.
  fake.isDeleted = true;
  fake.sendOther({ event: 'error', error: { code: 'not_found', message: 'the connection was deleted' } });
  await heading(page, 'This sign-in no longer exists').waitFor();
  fake.isDeleted = false;

  // Too many attempts: the exchange waits as long as the server asks for.
  fake.reset();
  fake.set(states.credentials());
  fake.refusedExchanges = 1;
  const early = await open({ allowedErrors: [/status of 429/] });
  await early.getByText('Too many attempts.').waitFor();
  await early.evaluate(() => dispatchEvent(new Event('online')));
  await shown(early, 'form');
  assert.equal(fake.requestsTo('POST', '/exchange').length, 2);
  await early.context().close();

  // Without a code and a token, for an unknown connection, and with a token that has ended.
  const incomplete = await open({ ...ALLOWED, url: fake.link.split('#')[0] });
  await heading(incomplete, 'This link is incomplete').waitFor();
  const unknown = await open({ ...ALLOWED, url: fake.link.replace('/conn_01', '/conn_02') });
  await heading(unknown, 'This sign-in no longer exists').waitFor();
  fake.reset();
  fake.set(states.credentials());
  const ended = await open(ALLOWED);
  await shown(ended, 'form');
  fake.isTokenExpired = true;
  fake.dropReaders();
  await heading(ended, 'This page has expired').waitFor();

  // No flow: the connection is signed in, or nothing runs.
  fake.reset();
  const idle = await open(ALLOWED);
  await heading(idle, 'No sign-in is running').waitFor();
  fake.reset();
  fake.connection.status = 'AUTHENTICATED';
  const signedIn = await open(ALLOWED);
  await heading(signedIn, 'You are signed in').waitFor();

  // A browser without storage signs in as well, until it is reloaded.
  fake.reset();
  fake.set(states.credentials());
  const context = signedIn.context();
  await context.addInitScript(() => {
    Object.defineProperty(window, 'sessionStorage', { get() { throw new DOMException('denied', 'SecurityError'); } });
  });
  await signedIn.goto('about:blank');
  await signedIn.goto(fake.link);
  await shown(signedIn, 'form');
});
