// The theme of the operator, the languages, and the size. The server has the name, the logo and the colors of
// `flows::login_page`.
import assert from 'node:assert/strict';
import { setColorScheme } from '../pages.mjs';
import { check, heading, run, shown } from './harness.mjs';
import { credentials, failed, opening } from './states.mjs';

const MAX_FIRST_PAINT = 100 * 1024;

/** Returns the contrast of two CSS colors. */
function contrast(one, other) {
  const luminance = color => {
    const channels = color.match(/\d+/g).slice(0, 3).map(channel => Number(channel) / 255);
    const [red, green, blue] = channels.map(value => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

const style = (page, selector, property) => page.locator(selector).first().evaluate((element, name) => getComputedStyle(element)[name], property);

/** Every color keeps its text legible, in both schemes. */
async function everyColorIsLegible(open, fake) {
  const colors = ['#ffffff', '#000000', '#ffee00', '#7f7f7f', '#777777', '#0b6e4f', '#ff0000', '#00ffff', '#161a21'];
  for (const colorScheme of ['light', 'dark']) {
    fake.reset();
    fake.set(credentials());
    const page = await open({ colorScheme });
    await shown(page, 'form');
    for (const color of colors) {
      await page.evaluate(async ([value, scheme]) => {
        const { properties } = await import(new URL('assets/theme.js', location.href));
        const both = { light: value, dark: value };
        for (const [name, text] of Object.entries(properties({ accent: both, background: both }, scheme))) document.documentElement.style.setProperty(name, text);
      }, [color, colorScheme]);
      const button = contrast(await style(page, '.primary', 'backgroundColor'), await style(page, '.primary', 'color'));
      const edge = contrast(await style(page, '.primary', 'borderTopColor'), await style(page, '.card', 'backgroundColor'));
      const footer = contrast(await style(page, 'html', 'backgroundColor'), await style(page, '.language', 'color'));
      assert.ok(button >= 4.5 && footer >= 4.5 && edge >= 3, `${color} ${colorScheme}: ${[button, footer, edge]}`);
    }
    await check(page, `theme-${colorScheme}`);
    await page.context().close();
  }
}

await run(async (open, fake) => {
  // The name, the logo and the colors of the settings.
  fake.set(credentials());
  const page = await open({ colorScheme: 'light', viewport: { width: 390, height: 844 } });
  await shown(page, 'form');
  await page.locator('#brand').getByText('Acme <Travel>', { exact: true }).waitFor();
  await page.waitForFunction(() => document.querySelector('#brand img').naturalWidth > 0);
  assert.equal(await style(page, '.primary', 'backgroundColor'), 'rgb(11, 110, 79)');
  await setColorScheme(page, 'dark');
  assert.equal(await style(page, '.primary', 'backgroundColor'), 'rgb(111, 216, 178)');
  assert.equal(await style(page, '.primary', 'color'), 'rgb(0, 0, 0)');
  await check(page, 'branded-dark');
  await setColorScheme(page, 'light');
  await check(page, 'branded-light');
  fake.set(failed());
  await page.getByText('To try again, go back to Acme <Travel> and ask for a new link.').waitFor();
  await everyColorIsLegible(open, fake);

  // The language of the browser, a language that the page does not have, and the selected one, which
  // keeps what is entered.
  for (const [locale, text] of [['de-AT', 'Anmelden'], ['fi-FI', 'Sign in'], ['ja', 'ログイン']]) {
    fake.reset();
    fake.set(credentials());
    const localized = await open({ locale });
    await heading(localized, text).waitFor();
    await localized.getByLabel('Email').fill('jane@example.com');
    await localized.getByLabel('Password', { exact: true }).fill('secret');
    await localized.locator('#language').selectOption('ar');
    await localized.waitForFunction(() => document.documentElement.dir === 'rtl');
    assert.equal(await localized.getByLabel('Email').inputValue(), 'jane@example.com');
    assert.equal(await localized.getByLabel('Password', { exact: true }).inputValue(), 'secret');
    await localized.reload();
    await localized.waitForFunction(() => document.documentElement.lang === 'ar');
    await localized.context().close();
  }
  // Every language fits a small window.
  fake.reset();
  fake.set(credentials());
  const small = await open({ locale: 'en', viewport: { width: 320, height: 568 }, hasTouch: true, isMobile: true });
  await shown(small, 'form');
  for (const language of ['de', 'en', 'es', 'fr', 'it', 'ja', 'nl', 'pl', 'pt', 'ar']) {
    await small.locator('#language').selectOption(language);
    await small.waitForFunction(selected => document.documentElement.lang === selected, language);
    await check(small, `language-${language}`);
  }
  await small.context().close();

  // Everything that is loaded until the first state is shown, uncompressed.
  fake.reset();
  fake.set(opening());
  const empty = await open({ locale: 'ar', url: 'about:blank' });
  let [size, files] = [0, 0];
  const pending = [];
  empty.on('response', response => {
    // The stream of the states has no end.
    if (response.headers()['content-type'] === 'text/event-stream') return;
    files += 1;
    pending.push(response.body().then(body => { size += body.length; }, () => {}));
  });
  await empty.goto(fake.link);
  await shown(empty, 'opening');
  await Promise.all(pending);
  assert.ok(files > 15 && size > 40_000, `${files} files, ${size} bytes`);
  assert.ok(size <= MAX_FIRST_PAINT, `${size} bytes`);
  console.log(`${files} files, ${size} bytes until the first state`);

  // Motion is reduced where that is preferred.
  await empty.emulateMedia({ reducedMotion: 'reduce' });
  assert.equal(await empty.locator('.tile').evaluate(tile => getComputedStyle(tile, '::after').animationName), 'none');
});
