// axe on every view and dialog in both themes, and images of them. The argument after the key is one of FORMS.
import { assertAccessible, setColorScheme } from '../pages.mjs';
import { api, run, signIn, visit, picture } from './harness.mjs';
import { interceptSamples } from './fakes.mjs';

const FORMS = {
  desktop: {},
  phone: { viewport: { width: 390, height: 844 }, hasTouch: true },
};
const POOL = 'pool_01kgc3v7e8r9t0w1x2y3z4a5b6';
const PROFILE = 'prof_01kgc3v7e8r9t0w1x2y3z4a5b6';

async function check(page, name) {
  for (const colorScheme of ['light', 'dark']) {
    await setColorScheme(page, colorScheme);
    await assertAccessible(page, `${name}-${colorScheme}`);
    await picture(page, `${name}-${colorScheme}`);
  }
}

/** Scrolls through the page until it has all thumbnails. */
async function showThumbnails(page) {
  for (const frame of await page.locator('.screen').all()) {
    await frame.scrollIntoViewIfNeeded();
    await frame.locator('img').waitFor();
  }
  await page.evaluate(() => scrollTo(0, 0));
}

async function checkAll(page, form, browser) {
  await check(page, `${form}-sign-in`);
  await signIn(page);
  await showThumbnails(page);
  await check(page, `${form}-browsers`);
  await page.getByRole('button', { name: 'New browser' }).click();
  await check(page, `${form}-new-browser`);
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Delete checkout-test' }).click();
  await check(page, `${form}-delete-browser`);
  await page.keyboard.press('Escape');
  for (const view of ['pools', `pools/${POOL}`, 'profiles', `profiles/${PROFILE}`, 'projects', 'keys', 'hosts', 'audit', `browsers/${browser}`]) {
    await visit(page, `#/${view}`);
    for (const summary of await page.locator('summary').all()) await summary.click();
    if (view.startsWith('browsers')) await showThumbnails(page);
    await check(page, `${form}-${view.split('/').map((part, index) => (index ? 'details' : part)).join('-')}`);
  }
  await visit(page, '#/browsers?query=nothing');
  await check(page, `${form}-empty`);
  await visit(page, '#/browsers/brw_01kgc3v7e8r9t0w1x2y3z4a5b6');
  await page.getByText('404 not_found').waitFor();
  await check(page, `${form}-error`);
}

await run(async open => {
  const start = text => `data:text/html,<body style="margin:0;font:64px sans-serif;background:linear-gradient(120deg,lightblue,white)"><h1>${text}</h1>`;
  await api('POST', 'browsers', { name: 'checkout-test', timeout_seconds: 3600, tags: { team: 'qa', run: '1841' }, viewport: { width: 1280, height: 800 }, start_url: start('Checkout') });
  const { session_id: id } = await api('POST', 'browsers', { timeout_seconds: 3600, viewport: { width: 1280, height: 800 }, start_url: start('Search') });
  const { replay_id: replay } = await api('POST', `browsers/${id}/replays`, {});
  await api('POST', `browsers/${id}/replays/${replay}/stop`);
  await api('POST', 'org/projects', { name: 'staging' });
  await api('POST', 'org/api_keys', { name: 'ci', days_to_expire: 90 });
  const [form] = process.argv.slice(5);
  const page = await open({ ...FORMS[form], allowedErrors: [/status of 404/] });
  await interceptSamples(page);
  await checkAll(page, form, id);
});
