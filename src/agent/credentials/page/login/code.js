// Where the code comes from that a field asks for.

const ADDRESS_ALONE = /^[^\s@]+@[^\s@]+$/u;

function describeCode(survey, fields) {
  const codes = fields.filter(({ kind }) => kind === 'code');
  if (codes.length === 0) return null;
  const groups = survey.loginGroups.flatMap((group) => group.fields);
  const own = groups.filter((field) => isCode(field)).map((field) => field.text);
  // An address by itself is that of the account.
  const step = survey.step.filter(({ text }) => !ADDRESS_ALONE.test(text));
  const text = [survey.headline, toWords(joined(step)), ...own].join('');
  const target = step.map((block) => maskedTarget(block.text)).find(Boolean) ?? null;
  const sources = [];
  if (means(text, 'byApp')) sources.push('app');
  if (means(text, 'bySms') || (target && !isAddress(target))) sources.push('sms');
  if (means(text, 'email') || means(text, 'byEmail') || isAddress(target)) sources.push('email');
  const source = sources.length === 1 ? sources[0] : 'unknown';
  return { source, masked_target: source === 'app' ? null : target };
}
