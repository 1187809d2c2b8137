// The npm package, with the conversions of screenshots and response bodies done by the host, which is faster.
import { core, ops } from '../host.ts';
import * as npm from 'buffer';

const { Buffer } = npm;
const isUtf8Name = (encoding: unknown) => encoding === undefined || encoding === 'utf8' || encoding === 'utf-8';
const asBuffer = (bytes: Uint8Array) => Object.setPrototypeOf(bytes, Buffer.prototype) as Buffer;

const { from } = Buffer;
Buffer.from = function (value: any, encoding?: any, length?: any) {
  if (typeof value === 'string') {
    if (encoding === 'base64' || encoding === 'base64url') return asBuffer(ops.op_base64_to_bytes(value));
    if (isUtf8Name(encoding)) return asBuffer(core.encode(value));
  }
  return from.call(Buffer, value, encoding, length);
} as typeof Buffer.from;

const { toString } = Buffer.prototype;
Buffer.prototype.toString = function (this: Buffer, encoding?: any, start?: any, end?: any) {
  if (start === undefined && end === undefined) {
    if (encoding === 'base64') return ops.op_base64_to_string(this);
    if (encoding === 'base64url') return ops.op_base64_to_string(this).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
    if (isUtf8Name(encoding)) return core.decode(this);
  }
  return toString.call(this, encoding, start, end);
} as typeof Buffer.prototype.toString;

const { isEncoding } = Buffer;
Buffer.isEncoding = ((encoding: string) => encoding === 'base64url' || isEncoding(encoding)) as typeof Buffer.isEncoding;

export function isUtf8(bytes: Uint8Array): boolean {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}

export { Buffer };
export const { kMaxLength, INSPECT_MAX_BYTES } = npm as any;
export default { ...npm, Buffer, isUtf8 };
