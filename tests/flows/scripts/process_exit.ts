const tried: string[] = [];
for (const f of ['exit', 'abort', 'kill', 'reallyExit', 'chdir'] as const) {
  try { (process as any)[f](1); tried.push(f); } catch (e: any) { tried.push(e.message); }
}
return tried;
