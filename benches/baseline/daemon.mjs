// daemon.mjs CDP_URL: runs TypeScript received over HTTP, over one CDP connection that it keeps open.
import { createServer } from 'node:http';
import { chromium } from 'playwright-core';
import { runSnippet } from './run.mjs';

let browser;
const connected = async () => (browser?.isConnected() ? browser : (browser = await chromium.connectOverCDP(process.argv[2])));

const server = createServer(async (request, response) => {
  let result;
  try {
    let body = '';
    for await (const chunk of request) body += chunk;
    const { code } = JSON.parse(body);
    result = { success: true, result: (await runSnippet(await connected(), code)) ?? null };
  } catch (error) {
    result = { success: false, error: String(error) };
  }
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(result));
});
server.listen(0, '127.0.0.1', () => console.log(JSON.stringify({ base_url: `http://127.0.0.1:${server.address().port}` })));
