const out: string[] = [];
const attempt = async (f: () => unknown) => {
  try {
    await f();
    out.push('no error');
  } catch (e: any) {
    out.push(`${e.name}: ${e.message.split('\n')[0]}`);
  }
};
await page.setContent('<b>1</b><b>2</b>');
await attempt(() => page.locator('b').click({ timeout: 30_000 }));
await attempt(() => page.evaluate(() => { throw new TypeError('in page'); }));
await attempt(() => page.goto('http://127.0.0.1:1/'));
await attempt(() => page.waitForSelector('#x', { timeout: 200 }));
await attempt(() => page.screenshot({ path: '/etc/x.png' }));
await attempt(() => page.locator('>>bad[').click());
await attempt(() => page.locator('role=button[foo').click());
await attempt(() => page.addScriptTag({ path: '/etc/passwd' }));
await attempt(() => playwright.chromium.launch());
await attempt(() => context.tracing.start());
await attempt(() => fetch('http://127.0.0.1/'));
await attempt(() => import('fs'));
return out;
