// The fields that the step asks for.

const MAX_FIELDS = 32;
const MAX_NAME = 100;
// The most fields of which is found out whether something is in front.
const MAX_EXAMINED = 64;
// The kinds of keyboards, by the types of fields and the values of `inputmode`.
const KEYBOARDS = {
  text: 'text', email: 'email', tel: 'tel', url: 'url', number: 'numeric', numeric: 'numeric',
  decimal: 'numeric',
};

// Returns the kind of a field, or null if it is none of a login.
function kindOfField(field, group, isChange) {
  if (isDecoy(field) || field.type === 'search' || means(field.text, 'captcha')) return null;
  if (isAnswerField(field)) return 'security_answer';
  if (isPassword(field)) {
    const isCurrent = field.tokens.has('current-password') || means(field.text, 'currentPassword');
    const isNew = isNewPassword(field) || (isChange && !isCurrent);
    return isNew ? 'new_password' : 'password';
  }
  if (codeRank(field) !== null) return 'code';
  return identifierKind(field) ?? (isBeforePassword(field) ? 'username' : 'text');
}

function identifierKind(field) {
  const ranked = Object.keys(IDENTIFIERS).filter((kind) => identifierRank(field, kind) !== null);
  if (ranked.length === 0) return null;
  if (field.type === 'email' || hasToken(field, 'email')) return 'email';
  if (field.type === 'tel' || hasToken(field, 'phone')) return 'phone';
  // The label is what the user answers to. One that names several is a user name.
  for (const text of [field.label, field.text]) {
    const named = ranked.filter((kind) => means(text, IDENTIFIERS[kind].words));
    if (named.length === 1) return named[0];
    if (named.length > 1) return 'username';
  }
  return 'username';
}

// Returns the fields. Those that something is in front of count only if all are covered.
function describeFields(survey) {
  const found = [];
  for (const group of survey.loginGroups) {
    const isChange = survey.changes.includes(group);
    const cells = group.splitCode ?? [];
    for (const field of group.fields) {
      if (found.length === MAX_EXAMINED) break;
      if (!field.isDrawn || (cells.includes(field) && field !== cells[0])) continue;
      const kind = cells.includes(field) ? 'code' : kindOfField(field, group, isChange);
      if (!kind) continue;
      const isReached = isReachable(field.element);
      found.push({ field, kind, cells: cells.includes(field) ? cells : [], isReached });
    }
  }
  const reached = found.filter(({ isReached }) => isReached);
  const shown = reached.length > 0 ? reached : found;
  const described = shown.slice(0, MAX_FIELDS).map((one) => describeField(one, survey));
  // A lone field of an unknown kind is not one of a login.
  return described.some(({ kind }) => kind !== 'text') ? described : [];
}

function describeField({ field, kind, cells, isReached }, survey) {
  const { element } = field;
  const isSplit = cells.length > 0;
  const elements = isSplit ? cells.map((cell) => cell.element) : [element];
  const isRejected = attributeOf(element, 'aria-invalid') === 'true';
  return {
    name: isSplit ? 'code' : nameOf(element, kind),
    kind,
    selector: selectorOf(field, survey.matcher.fields),
    origin: ownOrigin(),
    label: clip(rawLabel(element, isSplit), MAX_LABEL),
    placeholder: clip(attributeOf(element, 'placeholder'), MAX_LABEL) || null,
    hint: kind === 'security_answer' ? questionOf(element, survey) : hintOf(element, isRejected),
    input_mode: keyboardOf(field, kind),
    required: element.required || attributeOf(element, 'aria-required') === 'true',
    has_value: elements.some(({ value }) => value !== ''),
    covered: !isReached,
  };
}

function nameOf(element, kind) {
  const own = attributeOf(element, 'name') || attributeOf(element, 'id');
  return clip(own, MAX_NAME) || kind;
}

// Returns the label of a field as the page writes it. That of a split code names the group.
function rawLabel(element, isSplit) {
  const group = isSplit ? closestOf(element, 'fieldset, [role=group]') : null;
  if (group) {
    const legend = Element.prototype.querySelector.call(group, 'legend');
    const name = attributeOf(group, 'aria-label') || describedBy(group, 'aria-labelledby');
    const label = legend ? textContentOf(legend) : name;
    if (label.trim()) return label;
  }
  const named = labelOf(element) || attributeOf(element, 'aria-label');
  return named || attributeOf(element, 'placeholder');
}

// Returns the description of a field. That of a refused value is an error.
function hintOf(element, isRejected) {
  return isRejected ? null : describedBy(element, 'aria-describedby') || null;
}

const isQuestion = (text) => /[?？؟;]\s*\*?$/u.test(text.trim());

// Returns the question that a field answers: its label, or the last question before it.
function questionOf(element, { step }) {
  const label = labelOf(element);
  if (isQuestion(label)) return clip(label, MAX_HINT);
  const isBefore = (block) =>
    (element.compareDocumentPosition(block.element) & Node.DOCUMENT_POSITION_PRECEDING) !== 0;
  const questions = step.filter((block) => isBefore(block) && isQuestion(block.text));
  const question = questions.at(-1) ?? step.find((block) => isQuestion(block.text));
  return question ? clip(question.text, MAX_HINT) : hintOf(element, false);
}

function keyboardOf(field, kind) {
  const named = KEYBOARDS[attributeOf(field.element, 'inputmode').toLowerCase()];
  if (named) return named;
  const isNumeric = /^(\[0-9\]|\\d)/.test(attributeOf(field.element, 'pattern'));
  if (isNumeric || (kind === 'code' && field.element.maxLength === 1)) return 'numeric';
  return KEYBOARDS[field.type] ?? 'text';
}

const ownOrigin = () => (location.origin === 'null' ? self.origin : location.origin);
