// The methods that prove the identity, and other ways to log in.

// The methods by their words, the most specific first.
const METHODS = [
  ['switch', 'otherMethod'],
  ['passkey', 'byPasskey'],
  ['totp', 'byApp'],
  ['call', 'byCall'],
  ['sms', 'bySms'],
  ['push', 'byPush'],
  ['email', 'email'],
  ['password', 'password'],
];
const MAX_METHOD = 150;
// The most controls of a page that is a step of a login and has one to log out.
const MAX_STEP_CONTROLS = 15;

// Returns the choices of a method. Beside the fields of a user name or a password they are other
// ways to log in.
function methodChoices(survey, fields, submit) {
  const isFirst = fields.some(({ kind }) => !['code', 'security_answer', 'text'].includes(kind));
  const choices = [];
  for (const control of survey.stepControls) {
    const { element, label } = control;
    const isOther = isCheck(control) || element === submit?.element;
    if (isOther || label.length > MAX_METHOD || control.means('forgot', 'registration')) continue;
    const method = methodOf(control, isFirst);
    if (!method) continue;
    choices.push({ control, kind: isFirst ? 'sign_in_option' : 'mfa_method', method });
  }
  return isFirst || isMethodStep(survey, fields, choices) ? choices : [];
}

function methodOf(control, isFirst) {
  const phone = maskedTarget(control.label);
  const named = METHODS.find(([, meaning]) => control.means(meaning))?.[0] ?? null;
  const found = named === 'password' && control.means('code') ? null : named;
  if (!isFirst) return found ?? (phone && !isAddress(phone) ? 'sms' : null);
  // Beside a password, a word such as "email" alone is no other way.
  if (control.means('otherMethod', 'byPasskey')) return found;
  const isOption = control.means('signInOption') || (control.means('login') && found !== null);
  if (!isOption) return null;
  return found ?? 'switch';
}

// Whether the page is one of an application, such as the settings of a user who has logged in.
const isApplication = ({ controls }) =>
  controls.length > MAX_STEP_CONTROLS && presenceOf(controls, isLogOut) !== 'absent';

// Whether the step is about a proof: a text of it names one, it asks for a code, or is a login with several
// methods or a way to them.
function isMethodStep(survey, fields, choices) {
  if (fields.length > 0) return true;
  if (isApplication(survey)) return false;
  if (survey.says('proof') || means(pathWords(), 'proof')) return true;
  const methods = new Set(choices.map(({ method }) => method));
  return survey.isAboutLogin && (methods.size > 1 || methods.has('switch'));
}
