// A request on another device that has to be approved.

function describePush(survey, fields) {
  const isStep = survey.says('proof', 'login', 'byApp', 'notice');
  if (fields.length > 0 || !isStep || !means(survey.stepText, 'pushPrompt')) return null;
  const isPrompt = ({ text }) => means(toWords(text), 'pushPrompt');
  const prompts = survey.step.filter(isPrompt);
  const sentences = prompts.filter(({ element }) => !survey.headings.includes(element));
  const shown = sentences.length > 0 ? sentences : prompts;
  const text = shown.map((block) => block.text).join(' ');
  return { text: clip(text, MAX_MESSAGE), number: numberOf(survey.step) };
}

const NUMBER = new RegExp(
  '(?:number|zahl|nummer|numéro|chiffre|número|numero|liczb\\p{L}*|番号|数字|число|sayı\\p{L}*|' +
    'الرقم|숫자)\\D{0,40}?(\\d{1,3})(?!\\d)',
  'iu',
);

// Returns the number that the user compares: one that stands alone, or follows a word for it.
function numberOf(step) {
  const alone = step.filter(({ text }) => /^\d{1,3}$/.test(text));
  if (alone.length === 1) return alone[0].text;
  return NUMBER.exec(joined(step))?.[1] ?? null;
}
