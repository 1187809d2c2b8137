function assert(value: unknown, message?: string): void {
  if (!value) throw new Error(message || 'Assertion failed');
}
export = assert;
