// The site's own error message.

const ERROR_MARK = /error|invalid|danger|alert|fail|fehler|erreur/;
const MIN_ERROR = 3;
// The shortest value of a field that is removed from the message.
const MIN_VALUE = 3;

// Returns the message without values, or null. That of a page that is not about a login is none.
function siteError(survey) {
  if (!survey.isAboutLogin) return null;
  const message = refusedFieldError(survey) ?? alertError(survey) ?? textError(survey);
  return message ? clip(withoutValues(message), MAX_MESSAGE) : null;
}

const isMessage = (text) => text.length >= MIN_ERROR && text.length <= MAX_SEARCHED;

// Returns the description of a field that is marked as invalid.
function refusedFieldError({ matcher, loginGroups }) {
  const own = loginGroups.flatMap((group) => [...group.fields, ...group.fixed]);
  for (const { element } of own.length > 0 ? own : matcher.fields) {
    if (attributeOf(element, 'aria-invalid') !== 'true') continue;
    const described =
      describedBy(element, 'aria-errormessage') || describedBy(element, 'aria-describedby');
    if (isMessage(described)) return described;
  }
  return null;
}

// Returns the text of an alert of the page.
function alertError(survey) {
  for (const element of findAll('[role=alert], [aria-live=assertive]')) {
    if (survey.isBanner(element) || !isVisible(element)) continue;
    const text = readable(element);
    if (!isMessage(text)) continue;
    const words = toWords(text);
    const isError = means(words, 'wrongValue') || means(words, 'failure') || isMarked(element);
    if (isError || !means(words, 'notice')) return text;
  }
  return null;
}

const readable = (element) =>
  (element instanceof HTMLElement ? innerTextOf(element) : textContentOf(element)).trim();

// Whether the class or the id of an element, or of one of the two around it, is that of an error.
function isMarked(element) {
  let node = element;
  for (let depth = 0; node && depth < 3; depth += 1, node = composedParent(node)) {
    if (matchesAny(node, 'form, body, html, main')) return false;
    const names = `${attributeOf(node, 'class')} ${attributeOf(node, 'id')}`.toLowerCase();
    if (ERROR_MARK.test(names)) return true;
  }
  return false;
}

// The meanings of the values that a message may be about.
const VALUES = ['password', 'code', 'identifier', 'email', 'phone', 'login', 'answer'];

// Returns a text of the step that its words and its marks or its colour show to be an error.
function textError({ step }) {
  for (const { element, text } of step) {
    if (!isMessage(text) || matchesAny(element, 'label, legend, h1')) continue;
    const words = toWords(text);
    const isWrong = means(words, 'wrongValue');
    if (!isWrong && !means(words, 'failure')) continue;
    const isAboutValue = VALUES.some((meaning) => means(words, meaning));
    const isPlain = isWrong && isAboutValue && !/[?？؟]/u.test(text);
    if (isMarked(element) || isRed(element) || isPlain) return text;
  }
  return null;
}

function isRed(element) {
  const [red, green, blue] = (getComputedStyle(element).color.match(/[\d.]+/g) ?? []).map(Number);
  return red > 120 && red > green + 60 && red > blue + 60;
}

const REDACTED = '•••';

// Removes the values of fields, addresses, and numbers that may be codes.
function withoutValues(message) {
  let text = message;
  for (const { value } of findAll('input')) {
    if (typeof value !== 'string' || value.trim().length < MIN_VALUE) continue;
    const pattern = value.trim().replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
    text = text.replace(new RegExp(pattern, 'giu'), REDACTED);
  }
  const withoutAddresses = text.replace(/[^\s@"'“”„«»(]+@[^\s@"'“”„«»)]+/gu, REDACTED);
  return withoutAddresses.replace(/(?<![\p{L}\d])\d{4,}(?!\p{L})/gu, REDACTED);
}
