// The forms of a login among those of the document.

const hasDrawn = (group, test) => group.fields.some((field) => field.isDrawn && test(field));
const hasCode = (group) => group.splitCode !== null || hasDrawn(group, (f) => codeRank(f) !== null);
const hasCodeToken = (group) => hasDrawn(group, (field) => field.tokens.has('one-time-code'));
const isAnswerField = (field) =>
  !isDecoy(field) &&
  (means(field.text, 'answer') || means(field.text, 'securityQuestion')) &&
  !means(field.text, 'password') &&
  !isCode(field);

// Returns the groups of fields that a user is asked for: those with a password or a code, else
// those with the answer to a security question, else those that ask for the user alone.
function chooseGroups(survey) {
  const { groups, login } = survey.matcher;
  const page = survey.words;
  const isCodeStep = (group) =>
    hasCode(group) && (group.splitCode || hasCodeToken(group) || group.isLogin || isProof(page));
  const withSecret = groups.filter(
    (group) =>
      isPasswordChange(group, page, survey.controls) ||
      (login.includes(group) &&
        (hasDrawn(group, (field) => passwordRank(field) !== null) || isCodeStep(group))),
  );
  if (withSecret.length > 0) return withSecret;
  const isAsked = means(page, 'securityQuestion') || isProof(page);
  const answers = login.filter((group) => isAsked && hasDrawn(group, isAnswerField));
  if (answers.length > 0) return answers;
  const strengths = new Map(login.map((group) => [group, identifierStrength(survey, group)]));
  const best = Math.max(0, ...strengths.values());
  return best > 0 ? login.filter((group) => strengths.get(group) === best) : [];
}

// Returns how much a group without a password shows that it asks for the user of a login.
function identifierStrength({ matcher }, group) {
  const kinds = Object.keys(IDENTIFIERS);
  const isIdentifier = (field) => kinds.some((kind) => identifierRank(field, kind) !== null);
  return hasDrawn(group, isIdentifier) ? matcher.strengthOf(group) : 0;
}

const isProof = (text) =>
  ['proof', 'login', 'byApp', 'bySms'].some((meaning) => means(text, meaning));

