const url = new URL('../b?x=1&y=é#h', 'https://user@host.test:8080/a/c');
url.searchParams.append('z', '2');
const aborter = new AbortController();
aborter.signal.addEventListener('abort', () => console.log('aborted', aborter.signal.reason));
aborter.abort('why');
const target = new EventTarget();
target.addEventListener('hit', (e) => console.log(e.type), { once: true });
target.dispatchEvent(new Event('hit')); target.dispatchEvent(new Event('hit'));
const order: string[] = [];
await new Promise<void>((done) => { setImmediate(() => { order.push('immediate'); setTimeout(() => { order.push('timeout'); done(); }, 1); }); process.nextTick(() => order.push('tick')); queueMicrotask(() => order.push('micro')); });
const interval = setInterval(() => {}, 1); clearInterval(interval); clearTimeout(setTimeout(() => order.push('never'), 1));
return {
  href: url.href, query: [...url.searchParams], atob: atob(btoa('ok')), text: new TextDecoder().decode(new TextEncoder().encode('é')), clone: structuredClone(new Map([[1, { a: new Date(0) }]])),
  buffer: [Buffer.from('aGk', 'base64').toString(), Buffer.from('ff00', 'hex').length, Buffer.concat([Buffer.from('a'), Buffer.from('b')]).toString('base64'), Buffer.from('a-_b', 'base64url').length],
  order, uuid: crypto.randomUUID().length, now: performance.now() > 0, random: new Set(Array.from({ length: 20 }, () => Math.random())).size, zone: typeof new Date().getTimezoneOffset(),
};
