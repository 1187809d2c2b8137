// Serializes the result of a script as JSON, in pieces, so that a huge value takes memory up to the limit and not up to its size.
import { ops } from './host.ts';

/** The value has a part that JSON cannot represent. */
export class UnserializableError extends Error {
  override name = 'UnserializableError';
  constructor(path: string, description: string) {
    super(`the script returned ${description} at ${path}, which cannot be sent as JSON`);
  }
}

/** The limit of the host is reached. */
class LimitReached extends Error {}

const chunk = 64 * 1024;
const maxDepth = 500;
// Whether a value is an object of Playwright: one with a counterpart in the browser, or a locator.
const isHandle = (value: any) => (typeof value._guid === 'string' && value._connection !== undefined) || (value._frame !== undefined && value._selector !== undefined);

class Writer {
  #pending = '';
  #open = new Set<object>();

  write(text: string) {
    // A long string is passed in slices: a copy could exhaust the heap.
    for (let at = 0; at < text.length; at += chunk) {
      this.#pending += text.length > chunk ? text.slice(at, at + chunk) : text;
      if (this.#pending.length >= chunk) this.flush();
    }
  }

  flush() {
    if (this.#pending && !ops.op_result(this.#pending)) throw new LimitReached();
    this.#pending = '';
  }

  /** Writes `value`. Returns false, and writes nothing, if JSON omits it. */
  value(value: any, path: string, depth: number): boolean {
    switch (typeof value) {
      case 'string':
        this.#string(value);
        return true;
      case 'number':
        this.write(Number.isFinite(value) ? String(value) : 'null');
        return true;
      case 'boolean':
        this.write(String(value));
        return true;
      case 'bigint':
        throw new UnserializableError(path, 'a BigInt');
      case 'object':
        if (value === null) this.write('null');
        else this.#object(value, path, depth);
        return true;
      default:
        return false;
    }
  }

  #string(value: string) {
    if (value.length <= chunk) return this.write(JSON.stringify(value));
    this.write('"');
    for (let at = 0; at < value.length; ) {
      let end = Math.min(at + chunk, value.length);
      // Does not split a surrogate pair.
      const last = value.charCodeAt(end - 1);
      if (end < value.length && last >= 0xd800 && last <= 0xdbff) end -= 1;
      this.write(JSON.stringify(value.slice(at, end)).slice(1, -1));
      at = end;
    }
    this.write('"');
  }

  #object(value: any, path: string, depth: number) {
    if (this.#open.has(value)) throw new UnserializableError(path, 'a cycle');
    if (depth > maxDepth) throw new UnserializableError(path, `a value nested deeper than ${maxDepth} levels`);
    if (isHandle(value)) return this.#string(describeHandle(value));
    if (value instanceof Date) return this.value(Number.isNaN(value.getTime()) ? null : value.toISOString(), path, depth);
    if (value instanceof RegExp || value instanceof URL) return this.#string(String(value));
    if (value instanceof Error) return this.#error(value, path, depth);
    if (value instanceof Promise) throw new UnserializableError(path, 'a promise that was not awaited');
    if (value instanceof Number || value instanceof String || value instanceof Boolean) return this.value(value.valueOf(), path, depth);
    if (value instanceof ArrayBuffer) return this.#bytes(new Uint8Array(value));
    if (ArrayBuffer.isView(value)) return this.#bytes(new Uint8Array(value.buffer, value.byteOffset, value.byteLength));

    this.#open.add(value);
    if (value instanceof Map) this.#map(value, path, depth);
    else if (Array.isArray(value)) this.#list(value, path, depth);
    else if (value instanceof Set) this.#list([...value], path, depth);
    else if (typeof value.toJSON === 'function') {
      if (!this.value(value.toJSON(''), path, depth + 1)) this.write('null');
    } else this.#members(Object.keys(value), (key) => value[key], path, depth);
    this.#open.delete(value);
  }

  #list(items: unknown[], path: string, depth: number) {
    this.write('[');
    for (let i = 0; i < items.length; i++) {
      if (i) this.write(',');
      if (!this.value(items[i], `${path}[${i}]`, depth + 1)) this.write('null');
    }
    this.write(']');
  }

  /** An object if every key is a string, else a list of pairs. */
  #map(map: Map<unknown, unknown>, path: string, depth: number) {
    const keys = [...map.keys()];
    if (keys.every((key) => typeof key === 'string')) this.#members(keys as string[], (key) => map.get(key), path, depth);
    else this.#list([...map], path, depth);
  }

  #members(keys: string[], get: (key: string) => unknown, path: string, depth: number) {
    let separator = '{';
    for (const key of keys) {
      const value = get(key);
      if (value === undefined || typeof value === 'function' || typeof value === 'symbol') continue;
      this.write(`${separator}${JSON.stringify(key)}:`);
      this.value(value, /^[A-Za-z_$][\w$]*$/.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`, depth + 1);
      separator = ',';
    }
    this.write(separator === '{' ? '{}' : '}');
  }

  #bytes(bytes: Uint8Array) {
    this.write('{"type":"base64","data":"');
    // A multiple of three, so that the base64 of the pieces can be concatenated.
    for (let at = 0; at < bytes.length; at += 49_152) this.write(ops.op_base64_to_string(bytes.subarray(at, at + 49_152)));
    this.write('"}');
  }

  #error(error: Error, path: string, depth: number) {
    this.#open.add(error);
    const { name, message, stack, ...rest } = error as Error & Record<string, unknown>;
    const all: Record<string, unknown> = { name, message, stack, ...rest };
    this.#members(Object.keys(all), (key) => all[key], path, depth);
    this.#open.delete(error);
  }
}

/** Returns the name of an object of Playwright for results and `console`; its fields are internal. */
export function describeHandle(value: any): string {
  // The bundler of Playwright adds underscores and numbers to the classes' names.
  const name = String(value.constructor?.name ?? 'Handle').replace(/^_+/, '').replace(/\d+$/, '');
  if (value._selector !== undefined) return `[${name} ${String(value)}]`;
  let url: unknown;
  try {
    url = typeof value.url === 'function' ? value.url() : undefined;
  } catch {
    // The name has no URL then.
  }
  return typeof url === 'string' && url ? `[${name} ${url}]` : `[${name}]`;
}

/** Passes the value to the host as JSON, up to the limit of the host. */
export function writeResult(value: unknown): void {
  const writer = new Writer();
  try {
    if (!writer.value(value, 'result', 0)) writer.write('null');
    writer.flush();
  } catch (error) {
    if (!(error instanceof LimitReached)) throw error;
  }
}
