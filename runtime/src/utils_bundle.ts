// Replaces Playwright's bundle of third-party utilities with the few that an attached client uses.
import { refusedValue } from './refuse.ts';

const plain = (text: string) => text;
export const colors = new Proxy({}, { get: () => plain });

const silent = () => Object.assign(() => {}, { enabled: false });
export const debug = Object.assign(silent, { enable() {}, disable() {}, enabled: () => false, log: null, formatters: {} });

const types: Record<string, string> = {
  avif: 'image/avif', bmp: 'image/bmp', css: 'text/css', csv: 'text/csv', doc: 'application/msword',
  docx: 'application/vnd.openxmlformats-officedocument.wordprocessingml.document', gif: 'image/gif', gz: 'application/gzip',
  htm: 'text/html', html: 'text/html', ico: 'image/vnd.microsoft.icon', jpeg: 'image/jpeg', jpg: 'image/jpeg', js: 'text/javascript',
  json: 'application/json', md: 'text/markdown', mjs: 'text/javascript', mp3: 'audio/mpeg', mp4: 'video/mp4', pdf: 'application/pdf',
  png: 'image/png', svg: 'image/svg+xml', tar: 'application/x-tar', txt: 'text/plain', wasm: 'application/wasm', wav: 'audio/wav',
  webm: 'video/webm', webp: 'image/webp', woff: 'font/woff', woff2: 'font/woff2', xls: 'application/vnd.ms-excel',
  xlsx: 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet', xml: 'text/xml', yaml: 'text/yaml', yml: 'text/yaml', zip: 'application/zip',
};
export const mime = {
  getType: (path: string) => types[String(path).replace(/^.*[./\\]/, '').toLowerCase()] ?? null,
  getExtension: (type: string) => Object.keys(types).find((extension) => types[extension] === String(type).split(';')[0]) ?? null,
};

export const getProxyForUrl = () => '';
export const onExit = () => {};
export const jpegjs = refusedValue('decoding JPEG');
export const PNG = refusedValue('decoding PNG');
export const yaml = refusedValue('YAML');
export const ws = refusedValue('opening a WebSocket');
export const wsServer = ws;
export const wsReceiver = ws;
export const wsSender = ws;
export const HttpsProxyAgent = refusedValue('using a proxy');
export const SocksProxyAgent = HttpsProxyAgent;
export const yazl = refusedValue('writing ZIP files');
export const yauzl = refusedValue('reading ZIP files');
export const diff = refusedValue('comparing texts');
export const getStream = refusedValue('streams');
export const gracefulFs = refusedValue('the file system');
export const retry = refusedValue('retrying');
export const progress = refusedValue('a progress bar');
