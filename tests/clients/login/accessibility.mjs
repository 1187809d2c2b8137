// Every state with axe, on a phone and in a small window. The argument is the color scheme: the light one is
// checked from left to right, the dark one from right to left.
import { assertFitsWindow } from '../pages.mjs';
import { check, run, shown } from './harness.mjs';
import { STATES } from './states.mjs';

const [colorScheme] = process.argv.slice(4);
const PHONE = { width: 390, height: 844 };
const LOCALES = { light: [['en-GB', 'ltr']], dark: [['ar', 'rtl']] };
const MIN_TARGET = 44;
const NARROW = { width: 320, height: 568 };

/** Fails if a control is smaller than a finger. Links within a text are as high as it. */
async function assertTargets(page, name) {
  const small = await page.evaluate(least => [...document.querySelectorAll('button, input, select, summary, .link')]
    .map(element => [element, element.getBoundingClientRect()])
    .filter(([, { width, height }]) => width > 0 && (width < least || height < least))
    .map(([element, { width, height }]) => `${element.outerHTML.slice(0, 80)}: ${width} × ${height}`), MIN_TARGET);
  if (small.length > 0) throw new Error(`${name}: ${small.join(', ')}`);
}

/** Opens the page in a state. */
async function openState(open, fake, { kind, state, prepare, link = target => target, errors = [] }, locale) {
  fake.reset();
  prepare?.(fake);
  if (state) fake.set(state(fake));
  const page = await open({ url: link(fake.link), colorScheme, locale, viewport: PHONE, hasTouch: true, isMobile: true, allowedErrors: errors });
  await shown(page, kind);
  return page;
}

await run(async (open, fake) => {
  for (const [locale, direction] of LOCALES[colorScheme]) {
    for (const [name, state] of Object.entries(STATES)) {
      const page = await openState(open, fake, state, locale);
      const found = await page.evaluate(() => [document.documentElement.dir, document.documentElement.lang]);
      if (found[0] !== direction || found[1] !== locale.slice(0, 2)) throw new Error(`${name}: ${found}`);
      if (name === 'external') await page.frameLocator('iframe').getByRole('heading').waitFor();
      await assertTargets(page, name);
      await check(page, `${name}-${colorScheme}-${direction}`);
      await page.setViewportSize(NARROW);
      await assertFitsWindow(page, `${name} in a narrow window`);
      await page.context().close();
    }
    // The dialog, and the notice that the connection is lost.
    const page = await openState(open, fake, { ...STATES.credentials, errors: [/ERR_/] }, locale);
    await page.locator('#cancel').click();
    await check(page, `dialog-${colorScheme}-${direction}`);
    await page.keyboard.press('Escape');
    fake.isUnreachable = true;
    fake.dropReaders();
    await page.locator('#offline').waitFor();
    await assertTargets(page, 'offline');
    await check(page, `offline-${colorScheme}-${direction}`);
    await page.setViewportSize(NARROW);
    await assertFitsWindow(page, 'the notice in a narrow window');
    await page.setViewportSize({ width: 1280, height: 800 });
    await check(page, `wide-${colorScheme}-${direction}`);
    await page.context().close();
  }
  const page = await openState(open, fake, STATES.external, 'en');
  await page.setViewportSize({ width: 1280, height: 800 });
  await check(page, `wide-external-${colorScheme}`);
});
