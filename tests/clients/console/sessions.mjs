// Keys that end, and keys that are bound to a project.
import assert from 'node:assert/strict';
import { api, loaded, run, signIn, visit } from './harness.mjs';

await run(async open => {
  // A key that is deleted meanwhile: back to the form, with the reason, and nothing is kept.
  const { id, key: shortLived } = await api('POST', 'org/api_keys', { name: 'short-lived' });
  const page = await open({ allowedErrors: [/status of 401/] });
  await signIn(page, shortLived);
  await visit(page, '#/keys');
  await api('DELETE', `org/api_keys/${id}`);
  await page.evaluate(() => { location.hash = '#/projects'; });
  await page.getByText('Signed out: ').waitFor();
  assert.equal(await page.locator('#app').isVisible(), false);
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  // The next key continues at the same view.
  await signIn(page);
  await page.getByRole('heading', { name: 'Projects' }).waitFor();

  // A bound key sees its project and nothing of the organization.
  const { id: project } = await api('POST', 'org/projects', { name: 'bound-project' });
  const { key: boundKey } = await api('POST', 'org/api_keys', { name: 'bound', project_id: project });
  const bound = await open();
  const requests = [];
  bound.on('request', request => requests.push(new URL(request.url()).pathname));
  await signIn(bound, boundKey);
  assert.equal(await bound.locator('#project-select').isDisabled(), true);
  assert.equal(await bound.locator('#project-select').inputValue(), project);
  assert.deepEqual(await bound.locator('nav[aria-label=Console] a:visible').allInnerTexts(), ['Browsers', 'Pools', 'Profiles', 'Projects', 'API keys']);
  await visit(bound, '#/projects');
  await bound.getByRole('cell', { name: 'bound-project' }).waitFor();
  assert.equal(await bound.getByRole('row').count(), 2);
  assert.equal(await bound.locator('#main').getByRole('button', { name: /Delete|New project/ }).count(), 0);
  for (const hash of ['#/hosts', '#/audit']) {
    await visit(bound, hash);
    await bound.getByText('403 forbidden').waitFor();
  }
  assert.ok(!requests.some(path => /^\/(fleet|audit-logs|org\/limits)/.test(path)), requests.join(' '));

  // A hash that leads nowhere shows the first view.
  for (const hash of ['#/nowhere', '#/%', '#/constructor', '#']) {
    await page.evaluate(target => { location.hash = target; }, hash);
    await page.waitForFunction(() => document.title.startsWith('Browsers'));
    await loaded(page);
    await visit(page, '#/keys');
  }
});
