// The calls of the agent.

const MAX_CHOICES = 48;

const OPTIONS = '[type=radio], [role=radio], [role=option]';

function toChoice({ control, kind, method, provider }, { controls }) {
  return {
    ref: register(control, 'click'),
    selector: selectorOfControl(control, controls),
    kind,
    label: clip(control.label, MAX_LABEL),
    method: method ?? null,
    provider: provider ?? null,
    masked_target: method ? maskedTarget(control.label) : null,
    target_host: control.targetHost,
    origin: ownOrigin(),
    selected: matchesAny(control.element, OPTIONS) && control.isChecked,
  };
}

// Returns the alternatives in their order. A control is one of them.
function chooseChoices(survey, fields, submit) {
  const all = [
    ...accountChoices(survey, fields),
    ...providerChoices(survey, submit),
    ...methodChoices(survey, fields, submit),
  ];
  const chosen = new Map();
  for (const choice of all) {
    if (!chosen.has(choice.control)) chosen.set(choice.control, choice);
  }
  const position = ({ control }) => survey.controls.indexOf(control);
  return [...chosen.values()].sort((a, b) => position(a) - position(b)).slice(0, MAX_CHOICES);
}

// Returns the control that leads to the login, on a page without one.
function loginLink({ controls, loginGroups }, choices) {
  if (choices.length > 0 || loginGroups.length > 0) return null;
  return controls.find((control) => isLogIn(control) && control.isShown) ?? null;
}

function toElement(control, action) {
  return control && { ref: register(control, action), label: clip(control.label, MAX_LABEL) };
}

const toCheckbox = (control) =>
  control && { ...toElement(control, 'check'), checked: control.isChecked };

const loginPage = {
  // Returns what the document asks for. Scrolls, and changes nothing.
  inspect() {
    registered.clear();
    findRoots();
    const token = documentToken;
    if (isCaptchaUrl(location.href)) {
      return { token, captcha: isOwnCaptcha(), solved: false, findings: null };
    }
    const survey = new Survey();
    const fields = describeFields(survey);
    const submit = submitControl(survey);
    const choices = chooseChoices(survey, fields, submit);
    const skip = offerSkip(survey, fields);
    const findings = {
      fields,
      submit: toElement(submit, 'click'),
      choices: choices.map((choice) => toChoice(choice, survey)),
      login_link: toElement(skip ? null : loginLink(survey, choices), 'click'),
      code: describeCode(survey, fields),
      push: describePush(survey, fields),
      email_link: describeEmailLink(survey, fields),
      passkey: isPasskeyPrompt(survey, fields),
      consent: survey.banner && toElement(survey.banner.control, 'dismiss'),
      remember: toCheckbox(rememberControl(survey, fields)),
      skip: toElement(skip, 'click'),
      error: siteError(survey),
      ...describeSession(survey),
    };
    return { token, captcha: hasCaptcha(survey), solved: isSolved(), findings };
  },

  settle,

  act,

  adopt,

  isDrawn,
};
