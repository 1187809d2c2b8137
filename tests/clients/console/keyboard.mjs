// The console without a mouse.
import assert from 'node:assert/strict';
import { focusIsIn, tabTo } from '../pages.mjs';
import { announced, key, loaded, run } from './harness.mjs';

await run(async open => {
  const page = await open();
  await focusIsIn(page, '#key');
  await page.keyboard.type(key);
  await page.keyboard.press('Enter');
  await loaded(page);
  await focusIsIn(page, '#main');

  // The first stop is the link past the navigation.
  await page.evaluate(() => document.activeElement.blur());
  await page.reload();
  await loaded(page);
  await page.keyboard.press('Tab');
  await focusIsIn(page, '.skip');
  await page.keyboard.press('Enter');
  await focusIsIn(page, '#main');
  assert.ok(!(await page.evaluate(() => location.hash)).includes('main'));

  await tabTo(page, 'Projects', { back: true });
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Projects' }).waitFor();
  await loaded(page);
  await focusIsIn(page, '#main');
  assert.equal(await page.locator('[aria-current=page]').innerText(), 'Projects');

  // Escape closes a dialog, and the focus returns. Within a dialog it stays.
  await tabTo(page, 'New project');
  await page.keyboard.press('Enter');
  await focusIsIn(page, 'dialog input[name=name]');
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.waitForFunction(() => document.activeElement.textContent === 'New project');
  await page.keyboard.press('Enter');
  await page.keyboard.type('by-keyboard');
  await page.keyboard.press('Enter');
  await announced(page, 'The project is created.');
  await page.getByRole('row').filter({ hasText: 'by-keyboard' }).waitFor();

  // Arrow keys select another project, and the focus stays.
  await tabTo(page, 'Project', { back: true });
  for (const [arrow, project] of [['ArrowUp', 'by-keyboard'], ['ArrowDown', 'default']]) {
    await page.keyboard.press(arrow);
    await announced(page, `Project ${project} is selected.`);
    await loaded(page);
    await focusIsIn(page, '#project-select');
  }

  // A destructive action starts at the harmless button.
  await tabTo(page, 'Delete by-keyboard');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.activeElement.textContent === 'Cancel');
  await page.keyboard.press('Enter');
  await page.getByRole('alertdialog').waitFor({ state: 'detached' });
  await page.waitForFunction(() => document.activeElement.getAttribute('aria-label') === 'Delete by-keyboard');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await announced(page, 'Project by-keyboard is deleted.');
  await page.getByRole('row').filter({ hasText: 'by-keyboard' }).waitFor({ state: 'detached' });
  // The control is gone: the focus is at the view, not lost.
  await focusIsIn(page, '#main');

  await tabTo(page, 'Theme', { back: true });
  await page.keyboard.type('Dark');
  await page.waitForFunction(() => document.documentElement.dataset.theme === 'dark');
  await tabTo(page, 'Sign out');
  await page.keyboard.press('Enter');
  await focusIsIn(page, '#key');
});
