// A form that sets a new password.

// Whether a group has nothing but passwords, and is for a change that the user has to make before
// anything else: the page names the obligation, or has no control to log out, as the settings of an
// account have. `page` are the words of the page.
function isPasswordChange(group, page, controls) {
  const drawn = group.fields.filter((field) => field.isDrawn && !isDecoy(field));
  const passwords = drawn.filter((field) => isPassword(field));
  const hasNew = passwords.length > 1 || passwords.some(isNewPassword);
  if (!hasNew || drawn.length !== passwords.length) return false;
  const own = evidenceOf(group).join('') + passwords.map((field) => field.text).join('');
  const isChange = means(own, 'passwordChange') || means(page, 'passwordChange');
  if (!isChange || means(senderText(group.buttons), 'login')) return false;
  return means(page, 'obligation') || presenceOf(controls, isLogOut) === 'absent';
}
