// Pools and profiles of a real server: what other clients do with them is shown, and changed here.
import assert from 'node:assert/strict';
import { announced, api, inDialog, run, signIn, visit } from './harness.mjs';

/** Waits until the panel of a count shows this number. */
async function count(page, label, number) {
  const panel = page.locator('.count').filter({ hasText: label });
  await panel.getByText(String(number), { exact: true }).waitFor();
}

async function usePool(page) {
  await visit(page, '#/pools');
  await page.getByRole('button', { name: 'New pool' }).first().click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('checkout');
  await dialog.getByLabel('Start URL').fill('ftp://example.com');
  await dialog.getByLabel('Headless').check();
  await inDialog(page, 'Create');
  await dialog.getByText('400 bad_request').waitFor();
  assert.match(await dialog.getByRole('alert').innerText(), /start_url/);
  await dialog.getByLabel('Start URL').fill('about:blank');
  await inDialog(page, 'Create');
  await announced(page, 'The pool is created.');
  await page.getByRole('link', { name: 'checkout' }).click();
  await page.getByRole('heading', { name: 'checkout' }).waitFor();

  await count(page, 'available', 1);
  const { session_id: first } = await api('POST', 'browser_pools/checkout/acquire', {});
  await count(page, 'leased', 1);
  const waiter = api('POST', 'browser_pools/checkout/acquire', { acquire_timeout_seconds: 60 });
  await count(page, 'waiting', 1);
  await api('POST', 'browser_pools/checkout/release', { session_id: first });
  const { session_id: second } = await waiter;
  await count(page, 'waiting', 0);
  assert.notEqual(second, first);

  // A change by another client that only a URL shows.
  await api('PATCH', 'browser_pools/checkout', { start_url: 'about:blank#changed' });
  await page.getByText('about:blank#changed').waitFor();

  await page.getByRole('button', { name: 'Resize' }).click();
  await page.getByRole('dialog').getByLabel('Size').fill('0');
  await inDialog(page, 'Resize');
  await announced(page, 'Pool checkout is resized.');
  await page.getByRole('button', { name: 'Flush' }).click();
  await inDialog(page, 'Flush pool');
  await announced(page, 'Pool checkout is flushed.');
  assert.equal((await api('GET', `browsers/${second}`)).session_id, second);
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByText('1 leased one included').waitFor();
  await inDialog(page, 'Delete pool');
  await page.waitForFunction(() => location.hash === '#/pools');
  assert.deepEqual(await api('GET', 'browser_pools'), []);
}

async function useProfile(page) {
  await visit(page, '#/profiles');
  await page.getByRole('button', { name: 'New profile' }).first().click();
  await page.getByRole('dialog').getByLabel('Name').fill('shop');
  await inDialog(page, 'Create');
  await announced(page, 'The profile is created.');
  await page.getByRole('row').filter({ hasText: 'shop' }).getByText('empty').waitFor();
  await page.getByRole('link', { name: 'shop' }).click();
  await page.getByText('The profile is empty').waitFor();

  const { session_id: id } = await api('POST', 'browsers', { headless: true, timeout_seconds: 600, profile: { name: 'shop', save_changes: true } });
  await api('POST', `browsers/${id}/automation/execute`, {
    code: "await context.addCookies([{ name: 'login', value: 'kept', url: 'https://shop.example/', expires: 4102444800 }])",
  });
  // Its writer is the browser: it cannot be deleted, and the console says why.
  await page.getByRole('button', { name: 'Delete' }).click();
  await inDialog(page, 'Delete profile');
  await page.getByRole('alertdialog').getByText('409 profile_in_use').waitFor();
  await inDialog(page, 'Cancel');
  await api('DELETE', `browsers/${id}`);
  await page.getByRole('heading', { name: 'Version 1 current' }).waitFor();
  await page.getByText('1 cookie of 1 domain').click();
  await page.getByText('shop.example 1', { exact: true }).waitFor();

  const download = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Download' }).click();
  assert.equal((await download).suggestedFilename(), 'shop.tar.zst');
  const { session_id: other } = await api('POST', 'browsers', { headless: true, timeout_seconds: 600 });
  await api('POST', `browsers/${other}/profiles`, { name: 'shop' });
  await api('DELETE', `browsers/${other}`);
  await page.getByRole('heading', { name: 'Version 2 current' }).waitFor();
  await page.getByRole('button', { name: 'Restore version 1' }).click();
  await inDialog(page, 'Restore version');
  await page.getByText('Restored from version 1').waitFor();
  assert.equal((await api('GET', 'profiles/shop')).version, 3);
  await page.getByRole('button', { name: 'Delete' }).click();
  await inDialog(page, 'Delete profile');
  await page.waitForFunction(() => location.hash === '#/profiles');
  assert.deepEqual(await api('GET', 'profiles'), []);
}

await run(async open => {
  const page = await open({ allowedErrors: [/status of 4\d\d/], acceptDownloads: true });
  await signIn(page);
  await usePool(page);
  await useProfile(page);
});
