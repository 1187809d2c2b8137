// Every state with axe, on a phone and in a small window: light and from left to right, then dark and from right
// to left.
import { assertFitsWindow, setColorScheme } from '../pages.mjs';
import { check, run, shown } from './harness.mjs';
import { STATES } from './states.mjs';

const PHONE = { width: 390, height: 844 };
const MIN_TARGET = 44;
const NARROW = { width: 320, height: 568 };
const WIDE = { width: 1280, height: 800 };

/** Fails if a control is smaller than a finger. Links within a text are as high as it. */
async function assertTargets(page, name) {
  const small = await page.evaluate(least => [...document.querySelectorAll('button, input, select, summary, .link')]
    .map(element => [element, element.getBoundingClientRect()])
    .filter(([, { width, height }]) => width > 0 && (width < least || height < least))
    .map(([element, { width, height }]) => `${element.outerHTML.slice(0, 80)}: ${width} × ${height}`), MIN_TARGET);
  if (small.length > 0) throw new Error(`${name}: ${small.join(', ')}`);
}

/** Opens the page in a state. */
async function openState(open, fake, { kind, state, prepare, link = target => target, errors = [] }) {
  fake.reset();
  prepare?.(fake);
  if (state) fake.set(state(fake));
  const page = await open({ url: link(fake.link), colorScheme: 'light', locale: 'en-GB', viewport: PHONE, hasTouch: true, isMobile: true, allowedErrors: errors });
  await shown(page, kind);
  const { dir, lang } = await page.evaluate(() => ({ dir: document.documentElement.dir, lang: document.documentElement.lang }));
  if (dir !== 'ltr' || lang !== 'en') throw new Error(`${kind}: ${dir} ${lang}`);
  return page;
}

async function changeToDarkArabic(page) {
  await setColorScheme(page, 'dark');
  await page.locator('#language').selectOption('ar');
  await page.waitForFunction(() => document.documentElement.dir === 'rtl' && document.documentElement.lang === 'ar');
}

/** Checks the page as it is, then in the dark scheme and in Arabic. */
async function checkBoth(page, name) {
  await checkForms(page, `${name}-light-ltr`);
  await changeToDarkArabic(page);
  await checkForms(page, `${name}-dark-rtl`);
}

async function checkForms(page, name) {
  await page.setViewportSize(PHONE);
  await assertTargets(page, name);
  await check(page, name);
  await page.setViewportSize(NARROW);
  await assertFitsWindow(page, `${name} in a narrow window`);
}

await run(async (open, fake) => {
  for (const [name, state] of Object.entries(STATES)) {
    const page = await openState(open, fake, state);
    if (name === 'external') await page.frameLocator('iframe').getByRole('heading').waitFor();
    await checkBoth(page, name);
    await page.context().close();
  }
  // The dialog.
  let page = await openState(open, fake, STATES.credentials);
  await page.locator('#cancel').click();
  await check(page, 'dialog-light-ltr');
  await page.keyboard.press('Escape');
  await changeToDarkArabic(page);
  await page.locator('#cancel').click();
  await check(page, 'dialog-dark-rtl');
  await page.context().close();
  // The notice that the connection is lost.
  page = await openState(open, fake, { ...STATES.credentials, errors: [/ERR_/] });
  fake.isUnreachable = true;
  fake.dropReaders();
  await page.locator('#offline').waitFor();
  await page.setViewportSize(WIDE);
  await check(page, 'wide-light-ltr');
  await checkBoth(page, 'offline');
  await page.setViewportSize(WIDE);
  await check(page, 'wide-dark-rtl');
  await page.context().close();
  page = await openState(open, fake, STATES.external);
  await page.setViewportSize(WIDE);
  await check(page, 'wide-external-light');
  await setColorScheme(page, 'dark');
  await check(page, 'wide-external-dark');
});
