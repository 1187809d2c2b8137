/** Returns an error like Node's for one of the host, whose message begins with a code. */
export function nodeError(thrown: unknown): Error & { code?: string } {
  const { message } = thrown as Error;
  return Object.assign(new Error(message), { code: /^E[A-Z]+(?=: )/.exec(message)?.[0] });
}
