// An offer after a login, such as to create a passkey, that the user may skip.

const skipControl = ({ stepControls }) =>
  stepControls.find((control) => isAction(control) && control.means('skip')) ?? null;

// Returns the control that leads past the offer of a page, or null.
function offerSkip(survey, fields) {
  return fields.length === 0 && survey.isAboutStep ? skipControl(survey) : null;
}
