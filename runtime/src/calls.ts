// The script's calls into Playwright that are under way. When the script is stopped they say where it waited; once a script has
// answered, what it left running can start none.

interface ApiZone {
  apiName: string;
  internal: boolean;
  frames: { file: string; line: number; column: number; function?: string }[];
}

const underWay = new Set<ApiZone>();
let open = true;

export const calls = {
  begin(zone: ApiZone) {
    if (zone.internal) return;
    if (!open) throw new Error('the script that started this has ended');
    underWay.add(zone);
  },
  end(zone: ApiZone) {
    underWay.delete(zone);
  },
};

export function allowCalls(allowed: boolean): void {
  open = allowed;
  if (allowed) underWay.clear();
}

/** One line for each call that is under way, in the form of a stack trace. */
export function pendingCalls(): string {
  return [...underWay]
    .filter(({ apiName }) => apiName)
    .map(({ apiName, frames: [frame] }) => `    at ${apiName}${frame ? ` (${frame.file}:${frame.line}:${frame.column})` : ''}`)
    .join('\n');
}
