// A box to remember the device or the login, or the button that agrees to it on a page that asks.

function rememberControl(survey, fields) {
  const isRemember = (control) => control.isBox && isCheck(control) && control.means('remember');
  const box = survey.stepControls.find(isRemember);
  if (box || fields.length > 0 || !survey.isAboutLogin || !survey.says('remember')) {
    return box ?? null;
  }
  const isYes = (control) => isButton(control) && isAction(control) && control.means('affirm');
  return lone(survey.stepControls.filter(isYes));
}

const isCheck = ({ element }) =>
  matchesAny(element, 'input[type=checkbox], [role=checkbox], [role=switch]');
