await page.setContent('<input type=file id=up>');
await page.screenshot({ path: 'shots/one.png' });
await fs.promises.writeFile('up.txt', 'sent up');
await page.setInputFiles('#up', 'up.txt');
const sent = await page.evaluate(async () => (document.querySelector('#up') as HTMLInputElement).files![0].text());
await fs.promises.writeFile('tag.js', 'window.answer = 42');
await page.addScriptTag({ path: 'tag.js' });
const answer = await page.evaluate('window.answer');
await context.storageState({ path: 'state.json' });
await page.route('http://files.test/**', (route) => route.request().url().endsWith('.bin')
  ? route.fulfill({ body: 'downloaded', headers: { 'content-disposition': 'attachment; filename=x.bin' } })
  : route.fulfill({ contentType: 'text/html', body: '<a href=/x.bin>get</a>' }));
await page.goto('http://files.test/');
const [download] = await Promise.all([page.waitForEvent('download'), page.click('a')]);
await download.saveAs('kept.bin');
fs.appendFileSync('kept.bin', '!');
fs.renameSync('up.txt', 'moved.txt');
fs.rmSync('tag.js');
return {
  sent, answer, name: download.suggestedFilename(), again: fs.readFileSync(await download.path(), 'utf8'),
  kept: fs.readFileSync('kept.bin', 'utf8'), list: fs.readdirSync('.').filter((name: string) => name[0] !== '.'), png: fs.readFileSync('shots/one.png').subarray(1, 4).toString(),
  state: Object.keys(JSON.parse(fs.readFileSync('state.json', 'utf8'))), directory: fs.statSync('shots').isDirectory(),
};
