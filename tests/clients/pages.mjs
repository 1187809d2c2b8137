// Pages of this program in a browser, and what each of them has to satisfy.
import assert from 'node:assert/strict';
import { mkdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/**
 * Runs a scenario in the browser of a DevTools URL. `open` returns a page at `start`, in a context of its
 * own. Fails if a page below `origin` had an error, a violation of its policy, or one of `secrets` in a URL.
 */
export async function runPages(endpoint, { origin, start = origin, secrets }, scenario) {
  const browser = await chromium.connectOverCDP(endpoint);
  const problems = [];
  const watch = (page, allowedErrors) => {
    page.on('console', message => {
      const text = message.text();
      if (secrets.some(secret => text.includes(secret))) problems.push(`a secret is in the console: ${text}`);
      if (['error', 'warning'].includes(message.type()) && !allowedErrors.some(allowed => allowed.test(text))) {
        problems.push(`${message.type()}: ${text} (${message.location().url})`);
      }
    });
    page.on('pageerror', error => problems.push(error.stack));
    page.on('request', request => {
      if (secrets.some(secret => request.url().split('#')[0].includes(secret))) problems.push(`a secret is in ${request.url()}`);
    });
  };
  const open = async (options = {}) => {
    const { allowedErrors = [], url = start, ...contextOptions } = options;
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...contextOptions });
    context.setDefaultTimeout(60_000);
    await context.addInitScript(() => {
      window.violations = [];
      document.addEventListener('securitypolicyviolation', event => violations.push(`${event.violatedDirective} ${event.blockedURI}`));
    });
    const page = await context.newPage();
    watch(page, allowedErrors);
    await page.goto(url);
    return page;
  };
  try {
    await scenario(open);
    for (const context of browser.contexts()) {
      for (const page of context.pages()) {
        if (page.url().startsWith(origin)) assert.deepEqual(await page.evaluate(() => window.violations ?? []), []);
      }
    }
    assert.deepEqual(problems, []);
  } finally {
    for (const context of browser.contexts().slice(1)) await context.close();
    await browser.close();
  }
}

/** Fails if axe finds a violation, or the page is wider than its window. */
export async function assertAccessible(page, name) {
  await page.waitForFunction(() => document.getAnimations().every(animation => animation.playState !== 'running' || animation.effect.getTiming().iterations === Infinity));
  if (await page.evaluate(() => !window.axe)) await page.evaluate(`${axe}; null`);
  const violations = await page.evaluate(async () => {
    const result = await axe.run(document, { resultTypes: ['violations'] });
    return result.violations.map(({ id, nodes }) => `${id}: ${nodes.map(node => `${node.target} ${node.failureSummary}`).join('; ')}`);
  });
  assert.deepEqual(violations, [], name);
  await assertFitsWindow(page, name);
}

/** Changes the color scheme, and waits until the scripts of the page know it. */
export async function setColorScheme(page, colorScheme) {
  await page.emulateMedia({ colorScheme });
  await page.evaluate(() => new Promise(requestAnimationFrame));
}

export async function assertFitsWindow(page, name) {
  const excess = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(excess <= 0, `${name} is ${excess} pixels wider than the window`);
}

/** Keeps an image of the page in the directory that `BERTH_TEST_PICTURES` names. */
export async function picture(page, name, options = {}) {
  const directory = process.env.BERTH_TEST_PICTURES;
  if (!directory) return;
  await mkdir(directory, { recursive: true });
  await page.screenshot({ path: `${directory}/${name}.png`, ...options });
}

/** Waits until the focused element, or one around it, matches the selector. */
export function focusIsIn(page, selector) {
  return page.waitForFunction(target => document.activeElement.closest(target), selector);
}

/** Presses Tab until the element with this accessible text has the focus, which has to be visible. */
export async function tabTo(page, text, { back = false } = {}) {
  for (let count = 0; count < 60; count += 1) {
    await page.keyboard.press(back ? 'Shift+Tab' : 'Tab');
    const focused = await page.evaluate(() => {
      const { activeElement: element } = document;
      return element.getAttribute('aria-label') ?? element.labels?.[0]?.textContent ?? element.textContent.trim();
    });
    if (focused === text) {
      const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
      assert.notEqual(outline, 'none', text);
      return;
    }
  }
  assert.fail(`Tab does not reach ${text}`);
}
