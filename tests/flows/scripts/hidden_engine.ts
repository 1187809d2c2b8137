const suspicious = Object.getOwnPropertyNames(globalThis).filter((name) => name.startsWith('_') && name !== '__v8xTemporalTimeZone');
const gone = ['Deno', 'gc', 'Atomics', 'SharedArrayBuffer', 'WebAssembly', 'ShadowRealm', 'require', 'module'].filter((name) => name in globalThis);
const leaks: string[] = [];
// What the library calls through prototypes must not hand out the engine's functions.
for (const [owner, name] of [[Array.prototype, 'push'], [Array.prototype, 'map'], [Promise.prototype, 'then'], [Function.prototype, 'call'], [Function.prototype, 'apply'], [Map.prototype, 'get'], [Reflect, 'apply']] as [any, string][]) {
  const original = owner[name];
  owner[name] = function (...args: any[]) {
    for (const value of [this, ...args]) {
      if (typeof value === 'function' && value.name.startsWith('op_')) leaks.push(`${name}: ${value.name}`);
      if (value && typeof value === 'object' && Object.prototype.hasOwnProperty.call(value, 'op_cdp_send')) leaks.push(`${name}: ops`);
    }
    return Reflect.construct ? original.apply(this, args) : undefined;
  };
  if (name === 'apply' || name === 'call') owner[name] = original;
}
let seen: unknown;
(Error as any).prepareStackTrace = (_: Error, sites: any[]) => { seen = sites.map((site) => typeof site.getThis?.() === 'object' || typeof site.getFunction?.() === 'function'); return ''; };
await page.title();
new Error('x').stack;
delete (Error as any).prepareStackTrace;
const outer = (function () { return (arguments.callee as any)?.caller; });
let caller: unknown;
try { caller = outer(); } catch (e: any) { caller = e.name; }
return { suspicious, gone, leaks, caller };
