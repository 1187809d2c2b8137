// From the link to the success without a mouse.
import assert from 'node:assert/strict';
import { focusIsIn, tabTo } from '../pages.mjs';
import { ENTERED, heading, run } from './harness.mjs';
import * as states from './states.mjs';

await run(async (open, fake) => {
  fake.set(states.opening());
  const page = await open();
  await heading(page, 'Opening the sign-in page').waitFor();
  await focusIsIn(page, 'h1');

  // The first field has the focus, and Enter submits what is complete.
  fake.set(states.credentials());
  await focusIsIn(page, 'input[autocomplete=username]');
  await page.keyboard.type('jane@example.com');
  await page.keyboard.press('Enter');
  await page.getByText('Please fill in this field.').waitFor();
  await focusIsIn(page, 'input[autocomplete=current-password]');
  await page.keyboard.type(ENTERED);
  const password = page.getByLabel('Password', { exact: true });
  await tabTo(page, 'Show password');
  await page.keyboard.press('Space');
  assert.equal(await password.getAttribute('type'), 'text');
  await page.keyboard.press('Space');
  assert.equal(await password.getAttribute('type'), 'password');
  await tabTo(page, 'Continue');
  await page.keyboard.press('Enter');
  assert.deepEqual(await fake.submission(), { interaction_id: 'int_1', field_values: { field_1_1: 'jane@example.com', field_1_2: ENTERED } });

  fake.set(states.verifying());
  await heading(page, 'Signing you in').waitFor();
  await focusIsIn(page, 'h1');

  // The rejected field has the focus, the reason describes it, and what is no secret is still there.
  fake.set(states.rejected());
  await focusIsIn(page, 'input[autocomplete=current-password]');
  assert.equal(await password.getAttribute('aria-invalid'), 'true');
  const description = await password.evaluate(input => document.getElementById(input.getAttribute('aria-describedby')).textContent);
  assert.equal(description, 'shop.example.com did not accept this. Please check it and try again.');
  assert.equal(await password.inputValue(), '');
  assert.equal(await page.getByLabel('Email').inputValue(), 'jane@example.com');
  await page.keyboard.type(ENTERED);
  await page.keyboard.press('Enter');
  assert.equal((await fake.submission()).interaction_id, 'int_2');

  // Of several rejected fields, the one that has to be filled in again has the focus.
  const both = states.rejected();
  fake.set({ ...both, interaction_id: 'int_3', fields: both.fields.map(one => ({ ...one, reason: 'rejected', required: false })) });
  await page.waitForFunction(() => document.querySelectorAll('[aria-invalid=true]').length === 2);
  await focusIsIn(page, 'input[autocomplete=current-password]');
  assert.equal(await page.getByText('optional').count(), 0);

  // A choice.
  fake.set(states.mfa());
  await focusIsIn(page, 'h1');
  await tabTo(page, 'Text me +49 ••• ••• 42');
  await page.keyboard.press('Enter');
  assert.deepEqual(await fake.submission(), { selected_choice_id: 'choice_4_1', interaction_id: 'int_4' });

  // A code, with the spaces that people type.
  fake.set(states.code());
  await focusIsIn(page, 'input[autocomplete=one-time-code]');
  await page.keyboard.type('123 456');

  // The dialog starts at the harmless button, Escape closes it, and the focus returns.
  await tabTo(page, 'Cancel sign-in');
  await page.keyboard.press('Enter');
  await focusIsIn(page, '#keep');
  await page.keyboard.press('Escape');
  await focusIsIn(page, '#cancel');
  await tabTo(page, 'Continue', { back: true });
  await page.keyboard.press('Enter');
  assert.deepEqual((await fake.submission()).field_values, { field_3_1: '123456' });

  fake.set(states.success());
  await heading(page, 'You are signed in').waitFor();
  await focusIsIn(page, 'h1');
  await tabTo(page, 'shop.example.com/account');

  // The person selects another language: a new state does not take the focus away.
  fake.reset();
  fake.set(states.opening());
  const other = await open();
  await heading(other, 'Opening the sign-in page').waitFor();
  await tabTo(other, 'Language');
  await other.keyboard.type('Deu');
  await heading(other, 'Die Anmeldeseite wird geöffnet').waitFor();
  fake.set(states.credentials());
  await heading(other, 'Anmelden').waitFor();
  await focusIsIn(other, '#language');
  await other.locator('#announcements').getByText('Anmelden').waitFor({ state: 'attached' });
});
