import { Buffer } from './buffer.ts';
import { ops } from '../host.ts';

class Hash {
  #chunks: Uint8Array[] = [];
  constructor(readonly algorithm: string) {}

  update(data: string | Uint8Array): this {
    this.#chunks.push(typeof data === 'string' ? Buffer.from(data) : data);
    return this;
  }

  digest(encoding?: BufferEncoding): string | Buffer {
    const digest = Buffer.from(ops.op_hash(this.algorithm, Buffer.concat(this.#chunks)));
    return encoding ? digest.toString(encoding) : digest;
  }
}

export const createHash = (algorithm: string) => new Hash(algorithm.toLowerCase().replace('-', ''));

export function randomBytes(length: number): Buffer {
  const bytes = Buffer.alloc(length);
  ops.op_random(bytes);
  return bytes;
}

export const randomUUID = () => crypto.randomUUID();
