// Pools, profiles and hosts, with intercepted responses; and servers without these routes.
import assert from 'node:assert/strict';
import { announced, inDialog, loaded, run, signIn, visit } from './harness.mjs';
import { intercept, sampleHosts, samplePools, sampleProfiles, sampleVersions } from './fakes.mjs';

const unknownRoute = () => [404, { code: 'not_found', message: 'no such route', details: [], inner_error: null }];
const changes = requests => requests.filter(({ method }) => method !== 'GET').map(({ method, path, query, body }) => [method, path, query, body]);

async function usePools(page) {
  let pools = samplePools();
  const [{ id }, { id: other }] = pools;
  const requests = await intercept(page, 'browser_pools', ({ method, path, body }) => {
    const [, target, action] = path.split('/');
    const pool = pools.find(item => item.id === target);
    if (method === 'GET') return [200, pool ?? pools];
    if (method === 'DELETE') pools = pools.filter(item => item !== pool);
    if (method === 'DELETE' || action === 'flush') return [204];
    if (method === 'PATCH') pool.browser_pool_config.size = body.size;
    else pools.unshift({ id: 'pool_01kgc3v7e8r9t0w1x2y3z4a5b8', name: body.name, created_at: new Date().toISOString(), available_count: 0, acquired_count: 0, waiting_count: 0, browser_pool_config: body });
    return [method === 'PATCH' ? 200 : 201, pool ?? pools[0]];
  });
  await visit(page, '#/pools');
  const cells = name => page.getByRole('row').filter({ hasText: name }).getByRole('cell').allInnerTexts();
  assert.deepEqual((await cells(other)).slice(1, 5), ['0', '0', '1,041', '2']);
  // The counts are updated.
  pools[1].waiting_count = 7;
  await page.getByRole('cell', { name: '7', exact: true }).waitFor();

  await page.getByRole('button', { name: 'New pool' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('search');
  await page.getByRole('dialog').getByLabel('Size').fill('3');
  await inDialog(page, 'Create');
  await page.getByRole('link', { name: 'search' }).waitFor();
  await page.getByRole('button', { name: 'Resize checkout' }).click();
  await page.getByRole('dialog').getByLabel('Size').fill('9');
  await inDialog(page, 'Resize');
  await announced(page, 'Pool checkout is resized.');
  await page.getByRole('link', { name: 'checkout' }).click();
  await page.getByText('25 % per minute').waitFor();
  await page.getByRole('button', { name: 'Flush' }).click();
  await inDialog(page, 'Flush pool');
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByText('2 leased ones included').waitFor();
  await inDialog(page, 'Delete pool');
  await page.waitForFunction(() => location.hash === '#/pools');
  await page.getByRole('button', { name: `Delete ${other}` }).click();
  await inDialog(page, 'Delete pool');
  await page.getByRole('link', { name: other }).waitFor({ state: 'detached' });
  assert.deepEqual(changes(requests), [
    ['POST', 'browser_pools', '', { name: 'search', size: 3, timeout_seconds: 600, headless: false }],
    ['PATCH', `browser_pools/${id}`, '', { size: 9 }],
    ['POST', `browser_pools/${id}/flush`, '', null],
    ['DELETE', `browser_pools/${id}`, 'force=true', null],
    ['DELETE', `browser_pools/${other}`, '', null],
  ]);
  assert.ok(requests.every(({ headers }) => headers['x-project-id']?.startsWith('proj_')));
}

async function useProfiles(page) {
  const [profiles, versions] = [sampleProfiles(), sampleVersions()];
  const [{ id }] = profiles;
  const requests = await intercept(page, 'profiles', ({ method, path, body }) => {
    const [, target, action] = path.split('/');
    const profile = profiles.find(item => item.id === target);
    if (method === 'GET') return [200, action === 'versions' ? versions : profile ?? profiles];
    if (method === 'DELETE') return [409, { code: 'profile_in_use', message: 'the profile is in use', details: [{ code: 'session', message: 'brw_1' }], inner_error: null }];
    if (action === 'versions') {
      versions.forEach(version => { version.is_current = false; });
      versions.unshift({ ...versions[1], version: 3, is_current: true, restored_from: 1 });
      profile.version = 3;
    }
    if (method === 'PATCH') profile.name = body.name;
    return [method === 'PATCH' ? 200 : 201, profile ?? { id: 'prof_01kgc3v7e8r9t0w1x2y3z4a5b7', ...body }];
  });
  await visit(page, '#/profiles');
  await page.getByRole('row').filter({ hasText: 'unused' }).getByText('empty').waitFor();
  await page.getByRole('button', { name: 'New profile' }).click();
  await inDialog(page, 'Create');
  await announced(page, 'The profile is created.');
  await page.getByRole('link', { name: 'shop-login' }).click();
  await page.getByText('The last save has failed.').waitFor();
  await page.getByText('13 cookies of 2 domains').click();
  await page.getByText('.example.com 12').waitFor();
  await page.getByText('1 origin with storage').waitFor();
  await page.getByText('1 skipped entry').waitFor();
  const download = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Download' }).click();
  assert.equal((await download).suggestedFilename(), 'shop-login.tar.zst');
  await page.getByRole('button', { name: 'Restore version 1' }).click();
  await inDialog(page, 'Restore version');
  await page.getByText('Restored from version 1').waitFor();
  await page.getByRole('button', { name: 'Restore version 2' }).waitFor();
  await page.getByRole('button', { name: 'Rename' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('renamed');
  await inDialog(page, 'Rename');
  await page.getByRole('heading', { name: 'renamed' }).waitFor();
  // An error is shown with all that the server says, and nothing is changed.
  await page.getByRole('button', { name: 'Delete' }).click();
  await inDialog(page, 'Delete profile');
  const error = await page.getByRole('alertdialog').getByRole('alert').innerText();
  for (const part of ['The profile is in use', '409 profile_in_use', 'session brw_1', 'req_intercepted']) assert.ok(error.includes(part), error);
  await inDialog(page, 'Cancel');
  assert.deepEqual(changes(requests), [
    ['POST', 'profiles', '', {}],
    ['POST', `profiles/${id}/versions/1/restore`, '', null],
    ['PATCH', `profiles/${id}`, '', { name: 'renamed' }],
    ['DELETE', `profiles/${id}`, '', null],
  ]);
}

async function useHosts(page) {
  const hosts = sampleHosts();
  const requests = await intercept(page, 'fleet/hosts', ({ method }) => (method === 'GET' ? [200, hosts] : method === 'POST' ? [200, hosts[0]] : [204]));
  await visit(page, '#/hosts');
  await page.getByRole('row').filter({ hasText: '10.0.0.8' }).getByText('draining').waitFor();
  await page.getByText('rack=12').waitFor();
  const [{ id }] = hosts;
  await page.getByRole('button', { name: `Drain ${id}` }).click();
  await inDialog(page, 'Drain host');
  await announced(page, 'The host is draining.');
  await page.getByRole('button', { name: `Delete ${id}` }).click();
  await inDialog(page, 'Delete host');
  await announced(page, 'The host is deleted.');
  assert.deepEqual(changes(requests), [['POST', `fleet/hosts/${id}/drain`, '', null], ['DELETE', `fleet/hosts/${id}`, '', null]]);
  assert.ok(requests.every(({ headers }) => !headers['x-project-id']));
}

await run(async open => {
  const page = await open({ allowedErrors: [/status of 409/], acceptDownloads: true });
  await signIn(page);
  await usePools(page);
  await useProfiles(page);
  await useHosts(page);

  const older = await open({ allowedErrors: [/status of 404/] });
  for (const name of ['browser_pools', 'profiles', 'fleet/hosts']) await intercept(older, name, unknownRoute);
  await signIn(older);
  for (const [hash, text] of [['#/pools', 'No pools here'], ['#/profiles', 'No profiles here'], ['#/hosts', 'No registered hosts here']]) {
    await visit(older, hash);
    await older.getByRole('heading', { name: text }).waitFor();
    assert.equal(await older.getByRole('alert').count(), 0);
  }
  await loaded(older);
});
