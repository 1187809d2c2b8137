const out: string[] = [];
const attempt = async (f: () => unknown) => {
  try { await f(); out.push('no error'); } catch (e: any) { out.push(`${e.code} ${e.message}`); }
};
await attempt(() => fs.promises.readFile('/etc/passwd'));
await attempt(() => fs.promises.readFile('../../etc/passwd'));
await attempt(() => fs.promises.readFile('a/../../x'));
await attempt(() => fs.promises.writeFile('/tmp/x', ''));
await attempt(() => fs.promises.readFile('missing'));
await attempt(() => fs.promises.symlink('/etc', 'link'));
await attempt(() => page.screenshot({ path: '../x.png' }));
// QuickJS has no stack traces across `await`, from which Playwright takes the name of this call.
await attempt(() => page.setInputFiles('body', '/etc/passwd').catch((e) => {
  throw new Error(e.message.replace(/^page\.setInputFiles: /, ''));
}));
await attempt(() => fs.promises.writeFile('big', Buffer.alloc(65 << 20)));
await attempt(() => { for (let i = 0; i < 5000; i++) fs.writeFileSync(`many${i}`, ''); });
await attempt(() => fs.promises.readdir('/'));
return out;
