// Evidence of a page that only a user who has logged in sees.

const MAX_ACTION = 60;
const LOG_OUT_PATH = /[/=_-](log|sign)[_-]?(out|off)\b/i;

const isAction = (control) => !control.isBox && control.label.length <= MAX_ACTION;
const isLogOut = (control) =>
  isAction(control) &&
  (control.means('logOut') || LOG_OUT_PATH.test(pathOfTarget(control))) &&
  !control.means('registration');
const isAccount = (control) =>
  isAction(control) &&
  control.means('account') &&
  !control.means('registration', 'login', 'logOut', 'forgot');
const isLogIn = (control) =>
  isAction(control) && control.means('login') && !control.means('registration', 'logOut', 'forgot');

function pathOfTarget(control) {
  const url = control.target ? URL.parse(control.target) : null;
  return url ? url.pathname + url.search : '';
}

// Returns whether controls of a kind are shown, or are only in the document.
function presenceOf(controls, test) {
  const found = controls.filter(test);
  if (found.length === 0) return 'absent';
  return found.some((control) => control.isShown) ? 'visible' : 'hidden';
}

function describeSession({ controls }) {
  return {
    log_out: presenceOf(controls, isLogOut),
    account: presenceOf(controls, isAccount),
    log_in: presenceOf(controls, isLogIn),
  };
}
