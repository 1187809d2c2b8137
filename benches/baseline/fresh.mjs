// fresh.mjs CDP_URL CODE: connects, runs the snippet and prints the result; one process per call.
import { chromium } from 'playwright-core';
import { runSnippet } from './run.mjs';

const browser = await chromium.connectOverCDP(process.argv[2]);
console.log(JSON.stringify({ success: true, result: (await runSnippet(browser, process.argv[3])) ?? null }));
process.exit(0);
