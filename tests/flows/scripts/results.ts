return {
  missing: undefined, nothing: null, list: [undefined, () => 1, Symbol('s')], date: new Date(0), bytes: Buffer.from('hi'), view: new Uint8Array([1, 2]),
  map: new Map([['a', 1]]), pairs: new Map([[1, 2]]), set: new Set([1, 'b']), numbers: [NaN, Infinity, -0, 1e21], regexp: /x/g, url: new URL('http://a/b?c'),
  json: { toJSON: () => 'mine' }, text: 'é😀"\\\n', page, locator: page.locator('b'), context, twice: [config(), config()],
};
function config() { return { shared: 1 }; }
