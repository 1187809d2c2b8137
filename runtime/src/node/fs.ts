// The part of Node's `fs` that Playwright's `path:` options and the files of a script need, limited to the directory of the call.
// The host checks every path; these functions only convert arguments and results.
import { Buffer } from './buffer.ts';
import { ops as raw } from '../host.ts';
import { nodeError } from '../node_error.ts';

/** Converts errors of the host to errors like Node's. */
const withNodeErrors =
  <A extends unknown[], R>(operation: (...args: A) => R) =>
  (...args: A): R => {
    try {
      return operation(...args);
    } catch (thrown) {
      throw Object.assign(nodeError(thrown), { path: args[0] });
    }
  };
const ops = {
  op_file_copy: withNodeErrors(raw.op_file_copy),
  op_file_list: withNodeErrors(raw.op_file_list),
  op_file_make_directory: withNodeErrors(raw.op_file_make_directory),
  op_file_read: withNodeErrors(raw.op_file_read),
  op_file_remove: withNodeErrors(raw.op_file_remove),
  op_file_rename: withNodeErrors(raw.op_file_rename),
  op_file_stat: withNodeErrors(raw.op_file_stat),
  op_file_write: withNodeErrors(raw.op_file_write),
};

type Encoding = BufferEncoding | { encoding?: BufferEncoding | null; flag?: string } | null | undefined;

const encodingOf = (options: Encoding) => (typeof options === 'string' ? options : options?.encoding);
const flagOf = (options: Encoding) => (options && typeof options === 'object' ? options.flag : undefined);

function pathOf(path: unknown): string {
  if (path instanceof URL) return decodeURIComponent(path.pathname);
  if (typeof path !== 'string') throw new TypeError('The "path" argument must be of type string.');
  return path;
}

const asBuffer = (bytes: Uint8Array) => Object.setPrototypeOf(bytes, Buffer.prototype) as Buffer;
const asBytes = (data: unknown, encoding?: BufferEncoding | null) => {
  if (typeof data === 'string') return Buffer.from(data, encoding ?? 'utf8');
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  throw new TypeError('The "data" argument must be of type string or an instance of Buffer, TypedArray, or DataView.');
};

class Stats {
  readonly mtime: Date;
  constructor(
    readonly kind: number,
    readonly size: number,
    readonly mtimeMs: number,
  ) {
    this.mtime = new Date(mtimeMs);
  }
  isFile() {
    return this.kind === 0;
  }
  isDirectory() {
    return this.kind === 1;
  }
  isSymbolicLink() {
    return this.kind === 2;
  }
}

class Dirent {
  constructor(
    readonly name: string,
    readonly parentPath: string,
    readonly stats: Stats,
  ) {}
  isFile() {
    return this.stats.isFile();
  }
  isDirectory() {
    return this.stats.isDirectory();
  }
}

const join = (directory: string, name: string) => `${directory.replace(/\/+$/, '')}/${name}`;

export const statSync = (path: unknown) => new Stats(...ops.op_file_stat(pathOf(path)));
export const lstatSync = statSync;

export function readFileSync(path: unknown, options?: Encoding): Buffer | string {
  const bytes = asBuffer(ops.op_file_read(pathOf(path)));
  const encoding = encodingOf(options);
  return encoding ? bytes.toString(encoding) : bytes;
}

export const writeFileSync = (path: unknown, data: unknown, options?: Encoding) =>
  ops.op_file_write(pathOf(path), asBytes(data, encodingOf(options)), flagOf(options)?.startsWith('a') ?? false);
export const appendFileSync = (path: unknown, data: unknown, options?: Encoding) =>
  ops.op_file_write(pathOf(path), asBytes(data, encodingOf(options)), true);
export const readdirSync = (path: unknown, options?: { withFileTypes?: boolean }) => {
  const directory = pathOf(path);
  const names = ops.op_file_list(directory);
  return options?.withFileTypes ? names.map((name) => new Dirent(name, directory, statSync(join(directory, name)))) : names;
};
export const mkdirSync = (path: unknown, _options?: unknown) => ops.op_file_make_directory(pathOf(path));
export const unlinkSync = (path: unknown) => ops.op_file_remove(pathOf(path), false);
export const rmdirSync = unlinkSync;
export const rmSync = (path: unknown, options: { recursive?: boolean; force?: boolean } = {}) => {
  if (options.force && !existsSync(path)) return;
  ops.op_file_remove(pathOf(path), options.recursive ?? false);
};
export const renameSync = (from: unknown, to: unknown) => ops.op_file_rename(pathOf(from), pathOf(to));
export const copyFileSync = (from: unknown, to: unknown) => ops.op_file_copy(pathOf(from), pathOf(to));
export const accessSync = (path: unknown) => void statSync(path);
export function existsSync(path: unknown): boolean {
  try {
    statSync(path);
    return true;
  } catch {
    return false;
  }
}

const refuse = (name: string): any => () => {
  throw new Error(`fs.${name}() is not available in a script`);
};
export const createReadStream = refuse('createReadStream');
export const createWriteStream = refuse('createWriteStream');
export const openSync = refuse('openSync');
export const symlinkSync = refuse('symlinkSync');
export const watch = refuse('watch');

/** Converts a function to one that returns a promise. */
const toAsync =
  <A extends unknown[], R>(callee: (...args: A) => R) =>
  async (...args: A) =>
    callee(...args);

export const promises = {
  access: toAsync(accessSync),
  appendFile: toAsync(appendFileSync),
  copyFile: toAsync(copyFileSync),
  lstat: toAsync(lstatSync),
  mkdir: toAsync(mkdirSync),
  mkdtemp: toAsync(refuse('mkdtemp')),
  open: toAsync(refuse('open')),
  readFile: toAsync(readFileSync),
  readdir: toAsync(readdirSync),
  rename: toAsync(renameSync),
  rm: toAsync(rmSync),
  rmdir: toAsync(rmdirSync),
  stat: toAsync(statSync),
  symlink: toAsync(symlinkSync),
  unlink: toAsync(unlinkSync),
  writeFile: toAsync(writeFileSync),
};

/** Converts a function that returns a promise to one that takes a callback. */
const withCallback =
  (callee: (...args: any[]) => Promise<unknown>) =>
  (...args: any[]) => {
    const callback = args.pop();
    if (typeof callback !== 'function') throw new TypeError('The "cb" argument must be of type function.');
    callee(...args).then(
      (value) => callback(null, value),
      (error) => callback(error),
    );
  };

export const access = withCallback(promises.access);
export const appendFile = withCallback(promises.appendFile);
export const copyFile = withCallback(promises.copyFile);
export const mkdir = withCallback(promises.mkdir);
export const readFile = withCallback(promises.readFile);
export const readdir = withCallback(promises.readdir);
export const rename = withCallback(promises.rename);
export const rm = withCallback(promises.rm);
export const stat = withCallback(promises.stat);
export const unlink = withCallback(promises.unlink);
export const writeFile = withCallback(promises.writeFile);
export const constants = { F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1 };
