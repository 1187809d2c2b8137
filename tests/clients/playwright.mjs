// Playwright's Node client. Usage: node playwright.mjs ENDPOINT SITE CONNECTIONS; prints its results as one line of JSON.
import { chromium } from 'playwright-core';

const MESSAGES = 1000;
const [endpoint, site, connections] = process.argv.slice(2);

async function click() {
  const browser = await chromium.connectOverCDP(endpoint);
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(site);
  await page.fill('#name', 'Ada');
  await page.click('#greet');
  const greeting = await page.textContent('#greeting');
  const second = await context.newPage();
  await second.goto(site);
  const title = await second.title();
  await context.close();
  await browser.close();
  return { greeting, title };
}

// Each call is a message in each direction; each line on the console is one more from the browser.
async function exchangeMessages(number) {
  const browser = await chromium.connectOverCDP(endpoint);
  const context = await browser.newContext();
  const page = await context.newPage();
  const lines = [];
  page.on('console', message => lines.push(message.text()));
  const calls = Array.from({ length: MESSAGES }, (_, i) => page.evaluate(n => {
    if (n % 100 === 0) console.log(String(n));
    return n;
  }, number * MESSAGES + i));
  const results = await Promise.all(calls);
  const correct = results.filter((n, i) => n === number * MESSAGES + i).length;
  await context.close();
  await browser.close();
  return { right: correct, lines: lines.length };
}

const clicked = await click();
const talks = await Promise.all(Array.from({ length: Number(connections) }, (_, i) => exchangeMessages(i)));
console.log(JSON.stringify({ ...clicked, talks }));
