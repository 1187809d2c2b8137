export { format, inspect } from '../console.ts';
const { TextDecoder, TextEncoder } = globalThis;
export { TextDecoder, TextEncoder };

export const promisify =
  (callee: (...args: any[]) => void) =>
  (...args: unknown[]) =>
    new Promise((resolve, reject) => callee(...args, (error: unknown, value: unknown) => (error ? reject(error) : resolve(value))));

export function inherits(child: Function, parent: Function): void {
  Object.setPrototypeOf(child.prototype, parent.prototype);
}

export const deprecate = <T>(callee: T) => callee;
export const isDeepStrictEqual = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);
export const types = {
  isPromise: (value: unknown) => value instanceof Promise,
  isRegExp: (value: unknown) => value instanceof RegExp,
  isDate: (value: unknown) => value instanceof Date,
};
