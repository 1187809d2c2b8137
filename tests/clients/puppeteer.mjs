// Puppeteer's client. Usage: node puppeteer.mjs ENDPOINT SITE; prints its results as one line of JSON.
import puppeteer from 'puppeteer-core';

const [endpoint, site] = process.argv.slice(2);
const browser = await puppeteer.connect({ browserWSEndpoint: endpoint });
const context = await browser.createBrowserContext();
const page = await context.newPage();
await page.goto(site);
await page.type('#name', 'Ada');
await page.click('#greet');
const greeting = await page.$eval('#greeting', element => element.textContent);
const title = await page.title();
await context.close();
await browser.disconnect();
console.log(JSON.stringify({ greeting, title }));
