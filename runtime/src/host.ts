// The functions of the engine and those in Rust (`runtime/ops`), captured while the snapshot is created. Scripts never see them:
// every global that refers to the engine is deleted before a script runs, and nothing here exposes one.

interface Core {
  ops: Record<string, never> & Ops;
  encode(text: string): Uint8Array;
  decode(bytes: Uint8Array): string;
  loadExtScript(name: string): any;
  createTimer(callback: () => void, ms: number, args: undefined, repeat: boolean, isRefed: boolean): object;
  cancelTimer(timer: object): void;
  refTimer(timer: object): void;
  unrefTimer(timer: object): void;
  queueImmediate(immediate: object): void;
  clearImmediate(immediate: object): void;
  immediateRefCount(increase: boolean): void;
  kRefed: symbol;
  setReportExceptionCallback(callback: (error: unknown) => void): void;
  setUnhandledPromiseRejectionHandler(handler: (promise: Promise<unknown>, reason: unknown) => boolean): void;
  AsyncVariable: new () => { enter(value: unknown): unknown; get(): unknown };
  getAsyncContext(): unknown;
  setAsyncContext(context: unknown): void;
}

export interface HttpRequest {
  method: string;
  url: string;
  headers: [name: string, value: string][];
  /** Whether the server may have any certificate. */
  insecure: boolean;
}

export interface HttpResponse {
  version: string;
  status: number;
  reason: string;
  headers: [name: string, value: string][];
  address: string | null;
  port: number;
}

interface Ops {
  /** Queues one message for the browser. */
  op_cdp_send(message: string): void;
  /** Waits for messages of the browser, and returns all that are queued. */
  op_cdp_receive(): Promise<string[]>;
  /** Writes to the script's standard output (1) or error (2); false once that stream is full. */
  op_output(stream: number, text: string): boolean;
  /** Appends to the result; false once it is full. */
  op_result(json: string): boolean;
  op_succeeded(): void;
  op_failed(error: string, stack: string): void;
  /** Sends a request through the agent. Characters of headers stand for bytes. Returns the id of the exchange. */
  op_http_send(request: HttpRequest, body: Uint8Array): number;
  /** Waits for the head of the response. */
  op_http_head(id: number): Promise<HttpResponse>;
  /** Waits for the end of the response, and returns its body, decompressed. */
  op_http_body(id: number): Promise<Uint8Array>;
  /** Ends an exchange. What waits for it fails. */
  op_http_cancel(id: number): void;
  op_attached(): void;
  op_detached(): void;
  op_random(bytes: Uint8Array): void;
  op_hash(algorithm: string, bytes: Uint8Array): Uint8Array;
  op_base64_to_string(bytes: Uint8Array): string;
  op_base64_to_bytes(text: string): Uint8Array;
  op_clock(): number;
  /** Schedules the next wake-up of the engine's timers. */
  op_timer_schedule(ms: number): void;
  op_scratch_path(): string;
  op_file_read(path: string): Uint8Array;
  op_file_write(path: string, bytes: Uint8Array, append: boolean): void;
  op_file_stat(path: string): [kind: number, size: number, modifiedMs: number];
  op_file_list(path: string): string[];
  op_file_remove(path: string, recursive: boolean): void;
  op_file_make_directory(path: string): void;
  op_file_rename(from: string, to: string): void;
  op_file_copy(from: string, to: string): void;
}

declare const Deno: { core: Core };

export const core = Deno.core;
// A copy, so that later changes of the engine's object have no effect.
export const ops: Ops = { ...core.ops };

export const loadWeb = (file: string) => core.loadExtScript(`ext:deno_web/${file}`);
