// login.mjs LAUNCH: logs in at a site for each HTTP request, as a user's script with Playwright does it, and prints the
// milliseconds of its parts. LAUNCH is JSON: the program, arguments and variables of Chromium, its user and a directory.
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';

const { program, args, env, user, directory } = JSON.parse(process.argv[2]);
if (process.getuid() === 0) {
  // Chromium has its own user, as that of an agent has.
  process.setgroups([]);
  process.setgid(user[1]);
  process.setuid(user[0]);
}

const run = promisify(execFile);
const shell = (script, ...parameters) => run('sh', ['-c', script, 'sh', ...parameters]);
const pack = (profile, archive) => shell('tar -C "$1" -cf - . | zstd -q -f -3 -T0 -c > "$2"', profile, archive);
const unpack = (archive, profile) => shell('zstd -q -dc "$1" | tar -C "$2" -xf -', archive, profile);

// `from` is the archive of the profile, if there is one yet; `to` is where the profile is saved.
async function logIn({ url, member, credential, from, to }) {
  const start = performance.now();
  const profile = await mkdtemp(`${directory}/profile-`);
  if (from) await unpack(from, profile);
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: program,
    args: [...args, `--user-data-dir=${profile}`, '--remote-debugging-pipe'],
    ignoreDefaultArgs: true,
    env,
    viewport: null,
  });
  const page = context.pages()[0] ?? await context.newPage();
  const launched = performance.now();
  await page.goto(url);
  await page.fill('[name=username]', credential.username);
  await page.fill('[name=password]', credential.password);
  await page.click('button[type=submit]');
  await page.waitForURL(member);
  await page.getByText('Log out').waitFor();
  const loggedIn = performance.now();
  // Chromium writes all of its profile when it is closed.
  await context.close();
  await pack(profile, to);
  const saved = performance.now();
  await rm(profile, { recursive: true });
  return { start: launched - start, pages: loggedIn - launched, save: saved - loggedIn, total: saved - start };
}

const server = createServer(async (request, response) => {
  let result;
  try {
    let body = '';
    for await (const chunk of request) body += chunk;
    result = await logIn(JSON.parse(body));
  } catch (error) {
    result = { error: String(error) };
  }
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(result));
});
server.listen(0, '127.0.0.1', () => console.log(JSON.stringify({ base_url: `http://127.0.0.1:${server.address().port}` })));
