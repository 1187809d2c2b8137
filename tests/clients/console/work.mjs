// The work of a user: browsers, projects, keys and the audit log of a real server.
import assert from 'node:assert/strict';
import { announced, api, inDialog, key, loaded, run, signIn, url, visit } from './harness.mjs';

async function rejectWrongKey(page) {
  const error = page.locator('#sign-in-error');
  for (const [wrong, message] of [['ключ', 'only letters, digits'], ['berth_wrong', '401 unauthorized']]) {
    await page.getByLabel('API key').fill(wrong);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await error.getByText(message).waitFor();
  }
  await error.getByText(/Request id req_/).waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
}

async function useBrowsers(page) {
  await page.getByText('No browsers are running').waitFor();
  await page.getByRole('button', { name: 'New browser' }).first().click();
  // The server rejects the name: its error is shown, and what was entered is kept.
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('not valid');
  await dialog.getByLabel('Headless').check();
  await inDialog(page, 'Create');
  await dialog.getByText('400 bad_request').waitFor();
  assert.match(await dialog.getByRole('alert').innerText(), /name .*Request id req_/s);
  await dialog.getByLabel('Name').fill('first');
  const screenshots = [];
  page.on('request', request => { if (request.url().endsWith('/computer/screenshot')) screenshots.push(request.url()); });
  await inDialog(page, 'Create');
  await announced(page, 'The browser is running.');
  const card = page.getByRole('listitem').filter({ hasText: 'first' });
  await card.getByRole('img', { name: 'Screen of first' }).waitFor();
  assert.equal(await card.getByRole('link', { name: 'Live view' }).count(), 0);

  // The list is updated, and no further screenshot is taken of a browser that has one.
  const { session_id: id } = await api('POST', 'browsers', { name: 'second', timeout_seconds: 600, tags: { team: '<b>qa</b>' } });
  const other = page.getByRole('listitem').filter({ hasText: 'second' });
  await other.getByRole('img', { name: 'Screen of second' }).waitFor();
  await other.getByText('team=<b>qa</b>').waitFor();
  assert.equal(screenshots.length, 2);
  await other.getByRole('button', { name: 'Refresh screen' }).click();
  await announced(page, 'The screen is up to date.');
  assert.equal(screenshots.length, 3);
  const live = other.getByRole('link', { name: 'Live view' });
  assert.match(await live.getAttribute('href'), new RegExp(`^http://.*/browsers/${id}/live\\?jwt=`));
  assert.equal(await live.getAttribute('rel'), 'noopener noreferrer');

  const replay = await api('POST', `browsers/${id}/replays`, {});
  await api('POST', `browsers/${id}/replays/${replay.replay_id}/stop`);
  await other.getByRole('link', { name: 'second', exact: true }).click();
  await page.getByRole('heading', { name: 'second' }).waitFor();
  const play = page.getByRole('row').filter({ hasText: replay.replay_id }).getByRole('link', { name: 'Play' });
  assert.match(await play.getAttribute('href'), /\/view\?jwt=/);
  await page.getByRole('button', { name: 'DevTools URL' }).click();
  assert.match(await page.getByRole('dialog').getByLabel('DevTools URL').inputValue(), /^ws:.*\/cdp\?jwt=/);
  await inDialog(page, 'Copy');
  await page.getByRole('dialog').getByText(/^(Copied\.|Press Ctrl\+C to copy\.)$/).waitFor();
  await inDialog(page, 'Close');

  await page.getByRole('button', { name: 'Delete' }).click();
  await inDialog(page, 'Cancel');
  assert.equal((await api('GET', 'browsers')).length, 2);
  await page.getByRole('button', { name: 'Delete' }).click();
  await inDialog(page, 'Delete browser');
  await announced(page, 'Browser second is deleted.');
  await page.waitForFunction(() => location.hash === '#/browsers');
  await page.getByLabel('Status').selectOption('deleted');
  await page.getByRole('button', { name: 'Search' }).click();
  await page.waitForFunction(() => location.hash.includes('status=deleted'));
  await page.getByRole('link', { name: 'second', exact: true }).waitFor();
  await page.getByLabel('Id or name').fill('nothing like this');
  await page.keyboard.press('Enter');
  await page.getByText('No browser matches the filters.').waitFor();
}

/** An open console does not keep a browser alive: neither its list nor its own page, which are updated. */
async function watchIdleBrowser(page) {
  for (const isOwnPage of [false, true]) {
    const { session_id: id } = await api('POST', 'browsers', { name: 'idle', headless: true, timeout_seconds: 10 });
    await visit(page, isOwnPage ? `#/browsers/${id}` : '#/browsers');
    await page.getByRole('img', { name: 'Screen of idle' }).waitFor();
    if (isOwnPage) await page.locator('.facts').getByText('ended', { exact: true }).waitFor();
    else await page.getByText('idle', { exact: true }).waitFor({ state: 'detached' });
  }
}

async function useProjects(page) {
  await visit(page, '#/projects');
  await page.getByText('1 of 32 browsers in use').waitFor();
  await page.getByRole('button', { name: 'New project' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('<i>staging<i>');
  await inDialog(page, 'Create');
  await announced(page, 'The project is created.');
  const row = page.getByRole('row').filter({ hasText: '<i>staging<i>' });
  await row.getByRole('button', { name: 'Rename' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('production');
  await inDialog(page, 'Rename');
  const renamed = page.getByRole('row').filter({ hasText: 'production' });
  await renamed.getByRole('button', { name: 'Limits' }).click();
  await page.getByLabel('Browsers at once').fill('7');
  await inDialog(page, 'Save');
  await announced(page, 'limits of project production are changed');
  assert.equal((await api('GET', 'org/projects/production/limits')).max_concurrent_sessions, 7);

  // The selected project is sent along.
  const { id } = await api('GET', 'org/projects/production');
  await page.locator('#project-select').locator(`option[value=${id}]`).waitFor({ state: 'attached' });
  const request = page.waitForRequest(sent => new URL(sent.url()).pathname === '/browsers' && sent.headers()['x-project-id'] === id);
  await visit(page, '#/browsers');
  await page.locator('#project-select').selectOption(id);
  await request;
  await page.getByText('No browsers are running').waitFor();
  await page.reload();
  await loaded(page);
  assert.equal(await page.locator('#project-select').inputValue(), id);

  await visit(page, '#/projects');
  await page.getByRole('row').filter({ hasText: 'default' }).getByRole('button', { name: 'Select' }).click();
  await announced(page, 'Project default is selected.');
  for (const [action, confirm, text] of [['Archive', 'Archive project', 'archived'], ['Activate', null, 'active']]) {
    await renamed.getByRole('button', { name: action }).click();
    if (confirm) await inDialog(page, confirm);
    await announced(page, `Project production is ${text}.`);
  }
  await page.getByRole('row').filter({ hasText: 'default' }).getByRole('button', { name: 'Delete' }).click();
  await inDialog(page, 'Delete project');
  await page.getByRole('alertdialog').getByText('409 project_not_empty').waitFor();
  await inDialog(page, 'Cancel');
  await renamed.getByRole('button', { name: 'Delete' }).click();
  await inDialog(page, 'Delete project');
  await announced(page, 'Project production is deleted.');
  await renamed.waitFor({ state: 'detached' });
}

async function useKeys(page) {
  await visit(page, '#/keys');
  await page.getByText('this key').waitFor();
  await page.getByRole('button', { name: 'New key' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('ci');
  await page.getByLabel('Valid for').selectOption({ label: 'default' });
  await page.getByLabel('Days until it expires').fill('90');
  await inDialog(page, 'Create');
  const secret = await page.getByRole('dialog').getByLabel('API key').inputValue();
  assert.match(secret, /^berth_/);
  await inDialog(page, 'Close');
  // It is removed a moment after it was closed.
  await page.locator('dialog').waitFor({ state: 'detached' });
  const row = page.getByRole('row').filter({ hasText: 'ci' }).filter({ hasText: 'default' });
  await row.getByText('in 90 days').waitFor();
  assert.ok(!(await page.content()).includes(secret), 'the key is shown only once');
  await row.getByRole('button', { name: 'Delete' }).click();
  await inDialog(page, 'Delete key');
  await announced(page, 'Key ci is deleted.');
  await row.waitFor({ state: 'detached' });
  return secret;
}

/** Waits until the audit log has an entry: it is stored after the response to its request. */
async function recorded(action) {
  const hour = 3_600_000;
  const [start, end] = [Date.now() - hour, Date.now() + hour].map(time => new Date(time).toISOString());
  const deadline = Date.now() + 60_000;
  for (let entries = []; !entries.some(entry => entry.action === action);) {
    assert.ok(Date.now() < deadline, `${action} is not recorded`);
    entries = await api('GET', `audit-logs?method=DELETE&start=${start}&end=${end}`);
  }
}

async function useAuditLog(page) {
  await recorded('delete_api_key');
  await visit(page, '#/audit');
  const rows = page.getByRole('table', { name: 'Audit log' }).getByRole('row');
  await page.getByLabel('Method').selectOption('DELETE');
  await page.getByRole('button', { name: 'Search' }).click();
  await page.getByText('delete_api_key').waitFor();
  await page.getByText('delete_project').first().waitFor();
  assert.equal(await page.getByText('create_project').count(), 0);
  await page.getByLabel('Method').selectOption('');
  await page.getByRole('button', { name: 'Search' }).click();
  await page.getByRole('link', { name: 'Older' }).click();
  await page.getByRole('link', { name: 'Newest' }).waitFor();
  await loaded(page);
  assert.ok(await rows.count() > 1);
  await page.goBack();
  await page.getByRole('link', { name: 'Newest' }).waitFor({ state: 'detached' });
}

await run(async open => {
  // More entries of the audit log than one page has.
  for (let i = 0; i < 11; i += 1) {
    const { id } = await api('POST', 'org/projects', { name: `project-${i}` });
    await api('DELETE', `org/projects/${id}`);
  }
  const page = await open({ allowedErrors: [/status of 40[019]/] });
  await rejectWrongKey(page);
  await signIn(page);
  await useBrowsers(page);
  await watchIdleBrowser(page);
  await useProjects(page);
  await useKeys(page);
  await useAuditLog(page);
  await visit(page, '#/hosts');
  await page.getByText('No registered hosts').waitFor();

  // The key is in the storage of this tab alone, and gone after the sign-out.
  const stored = await page.evaluate(() => ({ local: { ...localStorage }, cookies: document.cookie, key: sessionStorage.getItem('key') }));
  assert.deepEqual(stored, { local: {}, cookies: '', key });
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('API key').waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  assert.equal(new URL(page.url()).origin, new URL(url).origin);
});
