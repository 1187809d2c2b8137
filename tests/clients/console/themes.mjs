// The switch of the theme.
import assert from 'node:assert/strict';
import { run, signIn } from './harness.mjs';

await run(async open => {
  const page = await open({ colorScheme: 'light' });
  await signIn(page);
  const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await background();
  await page.getByLabel('Theme').selectOption('dark');
  const dark = await background();
  assert.notEqual(dark, light);
  await page.reload();
  assert.equal(await background(), dark);
  await page.getByLabel('Theme').selectOption('system');
  assert.equal(await background(), light);
});
