// The button that sends the fields, or leads to the next step.

// Returns the control, or null if none shows to be it.
function submitControl(survey) {
  const { loginGroups, stepControls } = survey;
  const plain = stepControls.filter((control) => !isAlternative(control));
  if (loginGroups.length === 0) return survey.isAboutLogin ? lone(plain.filter(isLeading)) : null;
  const buttons = loginGroups.flatMap((group) => group.buttons);
  const isSubmit = ({ element }) => isSender(element) && formOf(element) !== null;
  const own = plain.filter(({ element }) => buttons.includes(element));
  const submits = stepControls.filter((one) => buttons.includes(one.element) && isSubmit(one));
  const inside = preferred(own.filter(isSubmit))[0] ?? lone(preferred(own)) ?? lone(submits);
  return inside ?? lone(preferred(plain.filter(isLeading)));
}

// Whether a control is a button that leads to the next step, and no choice of a method.
const isLeading = (control) =>
  isButton(control) && control.means('login', 'next', 'send') && !methodOf(control, false);
const isButton = ({ element, isBox }) => !isBox && !(element instanceof HTMLAnchorElement);

const lone = (controls) => (controls.length === 1 ? controls[0] : null);

// Whether a control leads to another way to log in, or away from the login.
function isAlternative(control) {
  const others = ['byPasskey', 'otherMethod', 'signInOption', 'singleSignOn', 'forgot'];
  const isOther = others.some((meaning) => control.means(meaning));
  const isRegistration = control.means('registration') && !control.means('login', 'passwordChange');
  const text = separated(control.text);
  return isOther || isRegistration || PROVIDERS.some(([, name]) => name.test(text));
}

// Returns the controls with words of a login, or else of the next step, or else all.
function preferred(controls) {
  const lists = ['login', 'next', 'send'].map((meaning) =>
    controls.filter((control) => control.means(meaning)),
  );
  return lists.find((list) => list.length > 0) ?? controls;
}
