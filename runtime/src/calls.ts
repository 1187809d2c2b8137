// The pending calls of a script into Playwright. When the script is stopped, they show what it was waiting for. After its end, code
// that it left running cannot start new ones.

interface ApiZone {
  apiName: string;
  internal: boolean;
  frames: { file: string; line: number; column: number; function?: string }[];
}

const pending = new Set<ApiZone>();
let allowed = true;

export const calls = {
  begin(zone: ApiZone) {
    if (zone.internal) return;
    if (!allowed) throw new Error('the script that started this call has ended');
    pending.add(zone);
  },
  end(zone: ApiZone) {
    pending.delete(zone);
  },
};

export function allowCalls(allow: boolean): void {
  allowed = allow;
  if (allow) pending.clear();
}

/** Formats the pending calls like a stack trace, one per line. */
export function pendingCalls(): string {
  return [...pending]
    .filter(({ apiName }) => apiName)
    .map(({ apiName, frames: [frame] }) => `    at ${apiName}${frame ? ` (${frame.file}:${frame.line}:${frame.column})` : ''}`)
    .join('\n');
}
