// The accounts of a list, of which the user chooses one.

const ADDRESS = /[^\s@]+@[^\s@]+\.[^\s@]+/u;

// Returns the choices of an account, or none on a page that does not ask for one.
function accountChoices(survey, fields) {
  const isAsked = fields.length === 0 && survey.says('chooseAccount');
  if (!isAsked) return [];
  const choices = [];
  for (const control of survey.stepControls) {
    if (control.means('otherAccount')) {
      choices.push({ control, kind: 'other_account' });
    } else if (isAccountItem(control)) {
      choices.push({ control, kind: 'account' });
    }
  }
  return choices;
}

function isAccountItem(control) {
  const { element, label, target } = control;
  if (target?.startsWith('mailto:') || control.means('logOut', 'registration')) return false;
  const item = closestOf(element, '[data-identifier], [data-email], [data-account]');
  return ADDRESS.test(label) || item === element;
}
