// Reloads, lost connections and sleep. No state is missed, and the page does not disturb the person.
import assert from 'node:assert/strict';
import { ENTERED, heading, run, shown } from './harness.mjs';
import * as states from './states.mjs';

const streams = fake => fake.requestsTo('GET', '/events').map(({ headers }) => headers['last-event-id']);

/** Waits until the page has opened this number of streams, and the last one is open. */
async function streamsAre(page, fake, count) {
  while (streams(fake).length < count || fake.readers !== 1) {
    const request = fake.error ?? page.isClosed();
    assert.ok(!request, String(request));
    await page.evaluate(() => new Promise(resolve => requestAnimationFrame(resolve)));
  }
  assert.equal(streams(fake).length, count);
}

await run(async (open, fake) => {
  // A reload continues with the token. The code is used once, and is in no address.
  fake.set(states.credentials());
  const page = await open({ allowedErrors: [/ERR_/] });
  await shown(page, 'form');
  assert.equal(page.url(), fake.link.split('#')[0]);
  await page.reload();
  await shown(page, 'form');
  assert.equal(fake.requestsTo('POST', '/exchange').length, 1);
  await streamsAre(page, fake, 2);

  // A stream that ends is opened again after the last event. The same state does not touch the form.
  const password = page.getByLabel('Password', { exact: true });
  await password.fill(ENTERED);
  fake.dropReaders();
  await streamsAre(page, fake, 3);
  assert.deepEqual(streams(fake), [undefined, undefined, fake.eventId(1)]);
  fake.sendOther({ event: 'sse_heartbeat' });
  fake.set(states.credentials());
  fake.dropReaders();
  await streamsAre(page, fake, 4);
  assert.equal(await password.inputValue(), ENTERED);

  // What happens while there is no connection is caught up with.
  fake.isUnreachable = true;
  fake.dropReaders();
  await page.getByText('Connection lost. Trying again…').first().waitFor();
  assert.equal(await password.inputValue(), ENTERED);
  fake.set(states.verifying());
  fake.set(states.code());
  await page.getByRole('button', { name: 'Try now' }).waitFor();
  const before = streams(fake).length;
  // The page tries by itself, too, and hides the button then: a click that waits for it could miss it.
  const clicked = page.evaluate(() => document.querySelector('#try-now').click());
  fake.isUnreachable = false;
  await clicked;
  await heading(page, 'Enter the code').waitFor();
  await page.locator('#offline').waitFor({ state: 'hidden' });
  assert.equal(streams(fake)[before], fake.eventId(2));

  // Another login has begun, whose events have other ids: a reset, then the present state.
  const opened = streams(fake).length;
  const last = fake.eventId(4);
  fake.isUnreachable = true;
  fake.dropReaders();
  fake.beginFlow();
  fake.set(states.mfa());
  fake.isUnreachable = false;
  await heading(page, 'Confirm that it is you').waitFor();
  await streamsAre(page, fake, opened + 1);
  assert.equal(streams(fake).at(-1), last);
  fake.set(states.code());
  await heading(page, 'Enter the code').waitFor();

  // The device was asleep: a connection without a byte for long is not trusted.
  await page.clock.install();
  fake.dropReaders();
  await streamsAre(page, fake, opened + 2);
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await page.clock.fastForward(30_000);
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await streamsAre(page, fake, opened + 3);
  // A page that is restored has lost its connections.
  await page.evaluate(() => dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true })));
  await streamsAre(page, fake, opened + 4);
  // No heartbeat arrives.
  await page.clock.fastForward(41_000);
  await streamsAre(page, fake, opened + 5);
  assert.ok(streams(fake).slice(-4).every(id => id === fake.eventId(2)), String(streams(fake)));

  // The device has no network.
  await page.context().setOffline(true);
  await page.locator('#offline').waitFor();
  await page.context().setOffline(false);
  await page.locator('#offline').waitFor({ state: 'hidden' });

  // An answer that cannot be sent stays in its field, and is sent by the next attempt.
  const code = page.getByLabel('Security code');
  await code.fill('123456');
  fake.isUnreachable = true;
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.getByText('This could not be sent.').waitFor();
  assert.equal(await code.inputValue(), '123456');
  fake.isUnreachable = false;
  await page.getByRole('button', { name: 'Continue' }).click();
  assert.deepEqual((await fake.submission()).field_values, { field_3_1: '123456' });

  // The stream ends with the flow.
  fake.set(states.success());
  await shown(page, 'success');
  const count = streams(fake).length;
  await page.reload();
  await shown(page, 'success');
  assert.equal(streams(fake).length, count);

  // The time that remains is that of the server's clock, and is announced.
  fake.reset();
  fake.set(states.code());
  const timed = await open({ allowedErrors: [/ERR_/] });
  await timed.getByText('9 minutes left').waitFor();
  for (const [minutes, text] of [[4.2, '5 minutes left'], [7.6, /^\d+0 seconds left$/], [10, 'The time is over.']]) {
    fake.clockAhead = minutes * 60_000;
    const known = streams(fake).length;
    fake.dropReaders();
    await streamsAre(timed, fake, known + 1);
    await timed.locator('#time').getByText(text).waitFor();
    await timed.locator('#announcements').getByText(text).waitFor({ state: 'attached' });
  }
});
