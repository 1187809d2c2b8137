// seal.mjs BYTES SAMPLES CALLS: prints the microseconds of a call, for each sample, as a user of Node's crypto would seal values.
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

const [bytes, samples, calls] = process.argv.slice(2).map(Number);
const [key, place, secret] = [randomBytes(32), Buffer.from('record field 1'), Buffer.alloc(bytes, 'x')];

function seal() {
  const nonce = randomBytes(12);
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(place);
  return { nonce, text: Buffer.concat([cipher.update(secret), cipher.final()]), tag: cipher.getAuthTag() };
}

function open({ nonce, text, tag }) {
  const decipher = createDecipheriv('aes-256-gcm', key, nonce).setAAD(place).setAuthTag(tag);
  return Buffer.concat([decipher.update(text), decipher.final()]);
}

function measure(call) {
  return Array.from({ length: samples }, () => {
    const start = performance.now();
    for (let index = 0; index < calls; index++) call();
    return ((performance.now() - start) * 1e3) / calls;
  });
}

const sealed = seal();
console.log(JSON.stringify({ seal: measure(seal), open: measure(() => open(sealed)) }));
