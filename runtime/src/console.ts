// `console` and `util.inspect`, with output close to Node's. It goes to the stdout and stderr of the call.
import { ops } from './host.ts';

const customInspect = Symbol.for('nodejs.util.inspect.custom');
const maxItems = 100;
const maxText = 10_000;
const lineWidth = 72;

export interface InspectOptions {
  depth?: number | null;
}

export function inspect(value: unknown, options: InspectOptions = {}): string {
  const depth = options.depth === null ? Infinity : (options.depth ?? 2);
  return new Inspector(depth).show(value, 0);
}
inspect.custom = customInspect;

class Inspector {
  // The objects that are being printed, outermost first.
  #open: object[] = [];
  constructor(readonly maxDepth: number) {}

  show(value: unknown, depth: number): string {
    switch (typeof value) {
      case 'string':
        return quoted(value.length > maxText ? `${value.slice(0, maxText)}… ${value.length - maxText} more characters` : value);
      case 'bigint':
        return `${value}n`;
      case 'function':
        return showFunction(value);
      case 'number':
        return Object.is(value, -0) ? '-0' : String(value);
      case 'object':
        return value === null ? 'null' : this.#showObject(value, depth);
      default:
        return String(value);
    }
  }

  #showObject(value: object, depth: number): string {
    if (this.#open.includes(value)) return '[Circular *]';
    const custom = (value as Record<symbol, unknown>)[customInspect];
    if (typeof custom === 'function' && custom !== inspect) {
      const shown: unknown = custom.call(value, this.maxDepth - depth, {}, inspect);
      if (shown !== value) return typeof shown === 'string' ? shown : this.show(shown, depth);
    }
    if (value instanceof Error) return this.#showError(value, depth);
    if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'Invalid Date' : value.toISOString();
    if (value instanceof RegExp) return String(value);
    if (value instanceof Promise) return 'Promise { … }';
    if (value instanceof WeakMap || value instanceof WeakSet) return `${nameOf(value)} { <items unknown> }`;
    if (value instanceof URL) return `URL { ${value.href} }`;
    if (depth > this.maxDepth) return Array.isArray(value) ? '[Array]' : `[${nameOf(value) || 'Object: null prototype'}]`;
    this.#open.push(value);
    try {
      return this.#showMembers(value, depth);
    } finally {
      this.#open.pop();
    }
  }

  #showMembers(value: object, depth: number): string {
    const name = nameOf(value);
    if (Array.isArray(value)) {
      const items = value.slice(0, maxItems).map((item) => this.show(item, depth + 1));
      if (value.length > maxItems) items.push(`... ${value.length - maxItems} more items`);
      items.push(...this.#properties(value, depth, Object.keys(value).filter((key) => !/^\d+$/.test(key))));
      return group(name === 'Array' ? '' : `${name}(${value.length}) `, '[', items, ']', depth);
    }
    if (ArrayBuffer.isView(value) && !(value instanceof DataView)) {
      const list = value as unknown as ArrayLike<number | bigint>;
      const items = Array.from({ length: Math.min(list.length, maxItems) }, (_, i) => this.show(list[i], depth + 1));
      if (list.length > maxItems) items.push(`... ${list.length - maxItems} more items`);
      return group(`${name}(${list.length}) `, '[', items, ']', depth);
    }
    if (value instanceof ArrayBuffer) return `ArrayBuffer { byteLength: ${value.byteLength} }`;
    if (value instanceof Map) {
      const items = Array.from(value, ([key, item]) => `${this.show(key, depth + 1)} => ${this.show(item, depth + 1)}`);
      return group(`${name}(${value.size}) `, '{', capped(items), '}', depth);
    }
    if (value instanceof Set) {
      return group(`${name}(${value.size}) `, '{', capped(Array.from(value, (item) => this.show(item, depth + 1))), '}', depth);
    }
    if (value instanceof Number || value instanceof String || value instanceof Boolean) {
      return `[${name}: ${this.show(value.valueOf(), depth + 1)}]`;
    }
    const prefix = name === 'Object' ? '' : `${name || '[Object: null prototype]'} `;
    return group(prefix, '{', capped(this.#properties(value, depth, Object.keys(value))), '}', depth);
  }

  #properties(value: object, depth: number, keys: string[]): string[] {
    return keys.slice(0, maxItems + 1).map((key) => {
      const shownKey = /^[A-Za-z_$][\w$]*$/.test(key) ? key : quoted(key);
      const { get, set, value: data } = Object.getOwnPropertyDescriptor(value, key) ?? {};
      const shown = get ? (set ? '[Getter/Setter]' : '[Getter]') : set ? '[Setter]' : this.show(data, depth + 1);
      return `${shownKey}: ${shown}`;
    });
  }

  #showError(error: Error, depth: number): string {
    const title = error.message ? `${error.name}: ${error.message}` : error.name;
    const frames = framesOf(error);
    let text = frames ? `${title}\n${frames}` : `[${title}]`;
    if (error.cause !== undefined && depth <= this.maxDepth) {
      this.#open.push(error);
      text += ` {\n  [cause]: ${this.show(error.cause, depth + 1)}\n}`;
      this.#open.pop();
    }
    return text;
  }
}

const nameOf = (value: object): string => {
  const constructor: unknown = value.constructor;
  // The bundler of Playwright numbers classes that share a name.
  return typeof constructor === 'function' ? constructor.name.replace(/^([A-Z]\D*)\d$/, '$1') : '';
};

function showFunction(value: Function): string {
  const source = Function.prototype.toString.call(value);
  if (source.startsWith('class')) return `[class ${value.name || '(anonymous)'}]`;
  return `[${value.constructor?.name ?? 'Function'}${value.name ? `: ${value.name}` : ' (anonymous)'}]`;
}

function quoted(text: string): string {
  const quote = !text.includes("'") ? "'" : !text.includes('"') ? '"' : !text.includes('`') ? '`' : "'";
  const escaped = JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"');
  return quote + (quote === "'" ? escaped.replaceAll("'", "\\'") : escaped) + quote;
}

const capped = (items: string[]) =>
  items.length > maxItems ? [...items.slice(0, maxItems), `... ${items.length - maxItems} more items`] : items;

function group(prefix: string, open: string, items: string[], close: string, depth: number): string {
  if (items.length === 0) return `${prefix}${open}${close}`;
  const width = items.reduce((sum, item) => sum + item.length + 2, prefix.length);
  if (width <= lineWidth && !items.some((item) => item.includes('\n'))) return `${prefix}${open} ${items.join(', ')} ${close}`;
  const indent = '  '.repeat(depth + 1);
  return `${prefix}${open}\n${indent}${items.join(`,\n${indent}`)}\n${'  '.repeat(depth)}${close}`;
}

export function format(...args: unknown[]): string {
  let rest = args;
  let out = '';
  // Like Node: directives are replaced only if there are arguments for them.
  if (typeof args[0] === 'string' && args.length > 1) {
    let next = 1;
    out = args[0].replace(/%[sdifjoOc%]/g, (directive) => {
      if (directive === '%%') return '%';
      if (next >= args.length) return directive;
      const value = args[next++];
      switch (directive) {
        case '%s':
          return typeof value === 'string' ? value : inspect(value, { depth: 0 });
        case '%d':
          return typeof value === 'bigint' ? `${value}n` : String(Number(value));
        case '%i':
          return String(Number.parseInt(String(value), 10));
        case '%f':
          return String(Number.parseFloat(String(value)));
        case '%j':
          return JSON.stringify(value) ?? 'undefined';
        case '%c':
          return '';
        default:
          return inspect(value);
      }
    });
    rest = args.slice(next);
    if (rest.length) out += ' ';
  }
  return out + rest.map((value) => (typeof value === 'string' ? value : inspect(value))).join(' ');
}

const [toStdout, toStderr] = [1, 2];
let indent = '';
const counts = new Map<string, number>();
const clocks = new Map<string, number>();

function print(stream: number, args: unknown[]) {
  const text = format(...args);
  ops.op_output(stream, `${indent ? indent + text.replaceAll('\n', `\n${indent}`) : text}\n`);
}

const elapsed = (label: string) => `${label}: ${(ops.op_clock() - (clocks.get(label) ?? ops.op_clock())).toFixed(3)}ms`;

export const console = {
  log: (...args: unknown[]) => print(toStdout, args),
  info: (...args: unknown[]) => print(toStdout, args),
  debug: (...args: unknown[]) => print(toStdout, args),
  warn: (...args: unknown[]) => print(toStderr, args),
  error: (...args: unknown[]) => print(toStderr, args),
  trace: (...args: unknown[]) => print(toStderr, [`Trace: ${format(...args)}\n${framesOf(new Error())}`]),
  dir: (value: unknown, options?: InspectOptions) => print(toStdout, [inspect(value, options)]),
  table: (value: unknown) => print(toStdout, [value]),
  assert: (condition: unknown, ...args: unknown[]) => {
    if (!condition) print(toStderr, args.length ? ['Assertion failed:', ...args] : ['Assertion failed']);
  },
  group: (...args: unknown[]) => {
    if (args.length) print(toStdout, args);
    indent += '  ';
  },
  groupCollapsed: (...args: unknown[]) => console.group(...args),
  groupEnd: () => {
    indent = indent.slice(2);
  },
  count: (label = 'default') => {
    counts.set(label, (counts.get(label) ?? 0) + 1);
    print(toStdout, [`${label}: ${counts.get(label)}`]);
  },
  countReset: (label = 'default') => void counts.delete(label),
  time: (label = 'default') => void clocks.set(label, ops.op_clock()),
  timeLog: (label = 'default', ...args: unknown[]) => print(toStdout, [elapsed(label), ...args]),
  timeEnd: (label = 'default') => {
    print(toStdout, [elapsed(label)]);
    clocks.delete(label);
  },
};

/** Returns the stack frames of the script, without those of Playwright and of the engine. */
export function framesOf(error: Error): string {
  return String(error.stack ?? '')
    .split('\n')
    .filter((line) => /^\s+at /.test(line) && !line.includes('/playwright-core/') && !line.includes('(ext:'))
    .join('\n');
}
