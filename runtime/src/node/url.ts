const { URL, URLSearchParams } = globalThis;
export { URL, URLSearchParams };

export function fileURLToPath(url: string | URL): string {
  const { protocol, pathname } = new URL(url);
  if (protocol !== 'file:') throw new TypeError('The URL must be of scheme file');
  return decodeURIComponent(pathname);
}

export const pathToFileURL = (path: string) => new URL(`file://${encodeURI(path)}`);
export const parse = (url: string) => new URL(url);
export const format = String;
