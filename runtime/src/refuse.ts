// Stand-ins for features that scripts do not have.

const network = ['http2', 'net', 'tls', 'dns'];
const hint = ', which has no network access: use page.request.fetch(…), or page.evaluate(() => fetch(…)) to fetch in the page';

/**
 * A module of Node in which every function throws an error with its name. Classes can be extended and constants read, since
 * libraries do so while they load.
 */
export function refusedModule(name: string): object {
  class Agent {
    destroy() {}
  }
  const known: Record<string, unknown> = { Agent, constants: {}, promises: {} };
  if (name === 'net') {
    Object.assign(known, {
      isIP,
      isIPv4: (text: string) => isIP(text) === 4,
      isIPv6: (text: string) => isIP(text) === 6,
      getDefaultAutoSelectFamilyAttemptTimeout: () => 250,
    });
  }
  if (name === 'dns') known.getDefaultResultOrder = () => 'verbatim';
  return new Proxy(known, {
    get(target, key) {
      if (key in target) return target[key as string];
      if (typeof key === 'symbol' || key === '__esModule' || key === 'default' || key === 'then') return undefined;
      return () => {
        throw new Error(`${name}.${key}() is not available in a script${network.includes(name) ? hint : ''}`);
      };
    },
  });
}

/** A value that throws when it is used. */
export function refusedValue(feature: string): any {
  const refuse = () => {
    throw new Error(`${feature} is not available in a script`);
  };
  return new Proxy(refuse, { get: refuse, apply: refuse, construct: refuse });
}

function isIP(text: string): 0 | 4 | 6 {
  if (/^\d{1,3}(\.\d{1,3}){3}$/.test(text)) return 4;
  return text.includes(':') ? 6 : 0;
}
