"""Playwright's Python client. Usage: playwright_client.py ENDPOINT SITE CONNECTIONS; prints its results as one line of JSON."""

import asyncio
import json
import sys

from playwright.async_api import async_playwright

MESSAGES = 1000


async def click(chromium, endpoint, site):
    browser = await chromium.connect_over_cdp(endpoint)
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(site)
    await page.fill("#name", "Ada")
    await page.click("#greet")
    greeting = await page.text_content("#greeting")
    second = await context.new_page()
    await second.goto(site)
    title = await second.title()
    await context.close()
    await browser.close()
    return {"greeting": greeting, "title": title}


async def exchange_messages(chromium, endpoint, number):
    """Each call is a message in each direction; each line on the console is one more from the browser."""
    browser = await chromium.connect_over_cdp(endpoint)
    context = await browser.new_context()
    page = await context.new_page()
    lines = []
    page.on("console", lambda message: lines.append(message.text))
    script = "n => { if (n % 100 === 0) console.log(String(n)); return n }"
    numbers = range(number * MESSAGES, (number + 1) * MESSAGES)
    results = await asyncio.gather(*(page.evaluate(script, n) for n in numbers))
    correct = sum(result == n for result, n in zip(results, numbers))
    await context.close()
    await browser.close()
    return {"right": correct, "lines": len(lines)}


async def main(endpoint, site, connections):
    async with async_playwright() as playwright:
        chromium = playwright.chromium
        clicked = await click(chromium, endpoint, site)
        talks = await asyncio.gather(*(exchange_messages(chromium, endpoint, i) for i in range(int(connections))))
        print(json.dumps({**clicked, "talks": talks}))


asyncio.run(main(*sys.argv[1:]))
