// What is sent for each form of fields and choices, and what the page does with each response.
import assert from 'node:assert/strict';
import { ENTERED, heading, run, shown } from './harness.mjs';
import { STATES, rejected, mfa, credentials, code, device, failed, liveView, opening, success, verifying } from './states.mjs';

/** Shows a state, performs an action, and returns what is sent. */
async function answer(page, fake, state, action) {
  fake.set(state);
  await page.locator('#view h1').waitFor();
  await action();
  const body = await fake.submission();
  fake.set(verifying());
  await shown(page, 'verifying');
  return body;
}

async function sendsEachForm(page, fake) {
  const click = name => () => page.getByRole('button', { name }).click();
  assert.deepEqual(await answer(page, fake, mfa(), click('Authenticator app')), { selected_choice_id: 'choice_4_3', interaction_id: 'int_4' });
  assert.deepEqual(await answer(page, fake, device(), click('Another way')), { selected_choice_id: 'choice_6_1', interaction_id: 'int_6' });
  assert.deepEqual(await answer(page, fake, STATES.accounts.state(), click('Use another account')), { selected_choice_id: 'choice_1_3', interaction_id: 'int_1' });
  const methods = STATES.methods.state;
  assert.deepEqual(await answer(page, fake, methods(), click('Continue with Identity')), { sso_button_selector: '#sso', interaction_id: 'int_1' });
  assert.deepEqual(await answer(page, fake, methods(), click('Continue with workplace')), { sso_provider: 'workplace', interaction_id: 'int_1' });
  assert.deepEqual(await answer(page, fake, methods(), click('Scan a QR code')), { sign_in_option_id: 'qr', interaction_id: 'int_1' });
  assert.deepEqual(await answer(page, fake, methods(), async () => {
    await page.getByLabel('Work email').fill('  jane@example.com ');
    await page.keyboard.press('Enter');
  }), { interaction_id: 'int_1', fields: { login: 'jane@example.com' } });
  const options = { ...methods(), discovered_fields: undefined, pending_sso_buttons: undefined, sign_in_options: undefined };
  const legacy = { ...options, mfa_options: [{ type: 'sms', label: 'Text', target: '42' }] };
  // Texts that a code is sent with are no secret; a password is, also if it is a second factor.
  const linked = type => ({ ...options, discovered_fields: [{ name: 'f', type, label: 'Second factor', linked_mfa_type: 'sms' }] });
  for (const [type, inputType, autocomplete] of [['tel', 'text', 'one-time-code'], ['password', 'password', 'current-password'], ['totp', 'text', 'one-time-code']]) {
    fake.set(linked(type));
    await page.locator(`input[type=${inputType}][autocomplete=${autocomplete}]`).waitFor();
  }
  assert.deepEqual(await answer(page, fake, legacy, click('Text')), { mfa_option_id: 'sms', interaction_id: 'int_1' });
  // Optional fields that are empty are not sent. Passwords are sent as they are.
  assert.deepEqual(await answer(page, fake, STATES.question.state(), async () => {
    await page.getByLabel('What was the name').fill(' Rex ');
    await page.keyboard.press('Enter');
  }), { interaction_id: 'int_1', field_values: { field_2_1: 'Rex' } });
  assert.deepEqual((await answer(page, fake, credentials(), async () => {
    await page.getByLabel('Email').fill('jane');
    await page.getByLabel('Password', { exact: true }).fill(` ${ENTERED} `);
    await page.keyboard.press('Enter');
  })).field_values, { field_1_1: 'jane', field_1_2: ` ${ENTERED} ` });
}

async function explainsEachRejection(page, fake) {
  const proceed = page.getByRole('button', { name: 'Continue', exact: true });
  const field = page.getByLabel('Security code');
  fake.set(code());
  await field.fill('1');
  for (const [status, body, text] of [
    [429, { code: 'limit_exceeded' }, 'Too many attempts. Please wait a moment and try again.'],
    [503, { code: 'unavailable' }, 'This could not be sent. Check your connection and try again.'],
    [400, { code: 'bad_request', details: [] }, 'This answer cannot be used. Please check it.'],
    [400, { code: 'bad_request', details: [{ code: 'field_values.field_3_1', message: 'too long' }] }, 'This cannot be used here. Please check it.'],
  ]) {
    // The state is repeated while the answer is being sent.
    fake.submitResponses.push([status, body, code()]);
    await proceed.click();
    await fake.submission();
    await page.getByText(text).waitFor();
    assert.equal(await field.inputValue(), '1');
  }
  // The page of the site has changed: the present one is shown.
  fake.submitResponses.push([409, { code: 'stale_interaction' }]);
  fake.recordOnly = { interaction_id: 'int_9', fields: [{ id: 'f', type: 'text', label: 'City of birth', required: true }] };
  await proceed.click();
  await fake.submission();
  await page.getByLabel('City of birth').waitFor();
  await page.getByText('The page of the site has changed.').waitFor();
  fake.recordOnly = {};

  // The flow requests nothing any more: what it does is shown without a reason.
  fake.set(code());
  await field.fill('1');
  fake.submitResponses.push([409, { code: 'not_awaiting_input' }]);
  fake.recordOnly = verifying();
  await proceed.click();
  await fake.submission();
  await shown(page, 'verifying');
  assert.equal(await page.locator('#problem').textContent(), '');
  fake.recordOnly = {};

  // An answer without any value is not sent.
  fake.set({ ...code(), interaction_id: 'int_7', fields: code().fields.map(one => ({ ...one, required: false })) });
  await page.getByText('optional').waitFor();
  await proceed.click();
  await page.getByText('Please fill in this field.').waitFor();

  // A second click does not submit a second time.
  fake.set(code());
  await field.fill('2');
  await proceed.dblclick();
  await page.getByRole('button', { name: 'Sending…' }).dispatchEvent('click');
  await fake.submission();
  const submitted = fake.requestsTo('POST', '/submit').length;
  // The same question again after an accepted answer is a new one.
  fake.set(code());
  await proceed.waitFor();
  assert.equal(await field.inputValue(), '');
  await field.fill('3');
  await proceed.click();
  await fake.submission();
  assert.equal(fake.requestsTo('POST', '/submit').length, submitted + 1);
}

async function showsTextsOfSitesAsText(page, fake) {
  fake.set(rejected());
  await page.getByText('<img src=x onerror="document.title=1">Wrong <b>password</b>. 2 attempts left.', { exact: true }).waitFor();
  assert.equal(await page.locator('#view img, #view b').count(), 0);
  assert.match(await page.title(), /^Sign in – shop\.example\.com$/);
  fake.set({ ...success(), flow_status: 'IN_PROGRESS', flow_step: 'SUBMITTING', who: 'site' });
  await shown(page, 'verifying');

  // The live view is shown in a frame, with a message. The same state, which has another token and can have
  // another message, does not load the frame again.
  fake.set({ ...liveView(fake), external_action_message: '<b>Solve</b> the puzzle' });
  const frame = page.locator('iframe');
  await page.frameLocator('iframe').getByText('Are you a robot?').waitFor();
  await page.getByText('<b>Solve</b> the puzzle', { exact: true }).waitFor();
  assert.equal(await frame.getAttribute('referrerpolicy'), 'no-referrer');
  const source = await frame.getAttribute('src');
  fake.set({ ...liveView(fake), external_action_message: 'Select all <b>boats</b>' });
  await page.getByText('Select all <b>boats</b>', { exact: true }).waitFor();
  assert.equal(await frame.getAttribute('src'), source);
  fake.set({ ...liveView(fake), external_action_message: undefined });
  await page.getByText('Select all').waitFor({ state: 'hidden' });
  // URLs of another server and of scripts become no frame.
  for (const url of ['https://elsewhere.example/live', 'javascript:alert(1)', 'nonsense']) {
    fake.set({ ...device(), interaction_id: url, live_view_url: url });
    await page.getByText('for example on your phone').waitFor();
    assert.equal(await page.locator('iframe').count(), 0, url);
  }
}

await run(async (open, fake) => {
  fake.set(opening());
  const page = await open({ allowedErrors: [/status of (400|409|429|503)/] });
  await shown(page, 'opening');
  await sendsEachForm(page, fake);
  await explainsEachRejection(page, fake);
  await showsTextsOfSitesAsText(page, fake);

  // Canceling asks first.
  fake.set(code());
  await page.getByRole('button', { name: 'Cancel sign-in' }).click();
  await page.getByRole('button', { name: 'Keep going' }).click();
  assert.equal(fake.requestsTo('POST', '/cancel').length, 0);
  await page.getByRole('button', { name: 'Cancel sign-in' }).click();
  await page.getByRole('button', { name: 'Yes, cancel' }).click();
  await heading(page, 'The sign-in was canceled').waitFor();
  assert.equal(await page.getByRole('dialog').count(), 0);

  // A failure shows the site's reason, and a flow that ends closes the dialog.
  fake.reset();
  fake.set(code());
  const other = await open();
  await other.getByRole('button', { name: 'Cancel sign-in' }).click();
  await other.getByRole('dialog').waitFor();
  fake.set(failed());
  await heading(other, 'The sign-in did not work').waitFor();
  assert.equal(await other.getByRole('dialog').count(), 0);
  await other.getByText('This account is locked.').waitFor();
  await other.getByText('Technical details').click();
  await other.getByText('refused_by_site').waitFor();

  // Only web pages become links after the success.
  for (const [url, count] of [['https://shop.example.com/', 1], ['javascript:alert(1)', 0], ['data:text/html,1', 0]]) {
    fake.reset();
    fake.set({ ...success(), post_login_url: url });
    const ended = await open();
    await shown(ended, 'success');
    assert.equal(await ended.locator('#view a').count(), count, url);
    await ended.context().close();
  }
});
