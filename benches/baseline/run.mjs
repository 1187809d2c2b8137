// Runs a snippet: TypeScript through esbuild, then an AsyncFunction with page, context and browser.
import { transform } from 'esbuild';

const AsyncFunction = (async () => {}).constructor;

export async function runSnippet(browser, code) {
  const wrapped = `const __snippet = async (page, context, browser) => {\n${code}\n};`;
  const { code: javascript } = await transform(wrapped, { loader: 'ts', target: 'es2022' });
  const context = browser.contexts()[0] ?? await browser.newContext();
  const page = context.pages()[0] ?? await context.newPage();
  const run = new AsyncFunction('page', 'context', 'browser', `${javascript}\nreturn __snippet(page, context, browser);`);
  return run(page, context, browser);
}
