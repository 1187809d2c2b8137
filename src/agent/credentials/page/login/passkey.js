// A page that waits for a passkey or a security key. One that offers to create a passkey can be
// skipped.

function isPasskeyPrompt(survey, fields) {
  const isAlone = fields.length === 0 && survey.says('byPasskey');
  if (!isAlone || skipControl(survey)) return false;
  const leads = (control) => control.means('otherMethod', 'byPasskey', 'next');
  return survey.says('login', 'proof') || survey.stepControls.some(leads);
}
