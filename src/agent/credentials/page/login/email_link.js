// A link in an email that the site has sent, with which the user logs in.

// Returns the text about it, or null.
function describeEmailLink(survey, fields) {
  const isMember = presenceOf(survey.controls, isLogOut) !== 'absent';
  if (fields.length > 0 || isMember || !isAboutEmail(survey.stepText)) return null;
  const isSent = ({ text }) => {
    const words = toWords(text);
    return means(words, 'link') && (isAboutEmail(words) || means(words, 'notice'));
  };
  const texts = survey.step.filter(isSent).map(({ text }) => text);
  return texts.length > 0 ? clip(texts.join(' '), MAX_MESSAGE) : null;
}

const isAboutEmail = (text) => means(text, 'email') || means(text, 'byEmail');
