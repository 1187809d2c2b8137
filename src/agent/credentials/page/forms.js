// The fields of the document, and the forms that they belong to.

const TEXT_TYPES = new Set(['text', 'email', 'tel', 'number', 'password']);
const BUTTONS = 'button, input[type=submit], input[type=button], input[type=image], [role=button]';
// The number of fields for one character each that are together a field for a code.
const SPLIT_CODE = { min: 4, max: 10 };

// Returns the text fields, the buttons, the headings and the text areas.
function collect() {
  const found = { fields: [], buttons: [], headings: [], textareas: [] };
  visitElements((element) => {
    if (element instanceof HTMLInputElement && TEXT_TYPES.has(element.type)) {
      found.fields.push(toField(element));
    } else if (element instanceof HTMLInputElement && element.type === 'search') {
      found.fields.push(toField(element));
    } else if (element instanceof HTMLTextAreaElement) {
      found.textareas.push(element);
    } else if (element instanceof HTMLElement && !(element instanceof HTMLFormElement)) {
      if (element.matches(BUTTONS)) found.buttons.push(element);
      if (element.matches('h1, h2, h3, legend, [role=heading]')) found.headings.push(element);
    }
    if (element instanceof HTMLInputElement && element.matches(BUTTONS)) {
      found.buttons.push(element);
    }
  });
  return found;
}

// The attribute with the `autocomplete` of a filled field from before, which is `off` then. An
// attribute, so that later fills find it, and copies of the field have it. A page that uses the
// field for another step sets others.
const TOKENS = 'data-berth-autocomplete';
const tokensOf = (element) => {
  const own = element.getAttribute('autocomplete') ?? '';
  return own === 'off' ? (element.getAttribute(TOKENS) ?? own) : own;
};

// The purposes of the tokens of `autocomplete`: those for an account, and all others. Further ones,
// such as `off`, name none.
const ACCOUNT_TOKENS = {
  username: 'identifier',
  email: 'identifier',
  tel: 'identifier',
  'tel-national': 'identifier',
  'current-password': 'password',
  'new-password': 'password',
  'one-time-code': 'code',
};
const OTHER_TOKEN = new RegExp(
  '^((cc|tel|address|bday|honorific|transaction)-.+|(given|additional|family)-name|(nick)?name|' +
    'organization(-title)?|street-address|country(-name)?|postal-code|language|bday|sex|url|photo|' +
    'impp)$',
);
const purposeOf = (token) => ACCOUNT_TOKENS[token] ?? (OTHER_TOKEN.test(token) ? 'other' : null);

function toField(element) {
  const attribute = (name) => element.getAttribute(name) ?? '';
  const label = labelOf(element);
  const tokens = new Set(tokensOf(element).toLowerCase().split(/\s+/));
  const own = ['name', 'id', 'placeholder', 'aria-label', 'title', 'data-testid'].map(attribute);
  return {
    element,
    type: element.type,
    name: normalize(attribute('name')),
    id: normalize(attribute('id')),
    label: normalize(label || attribute('aria-label') || attribute('placeholder')),
    isEditable: !element.readOnly && !element.matches(':disabled'),
    tokens,
    purposes: [...tokens].map(purposeOf).filter(Boolean),
    text: [...own, label].map(normalize).join(''),
    isDrawn: isDrawn(element),
  };
}

// Returns the text of the labels of a field, or else the text before it.
function labelOf(element) {
  const labels = [...(element.labels ?? [])].map((label) => label.textContent);
  const root = element.getRootNode();
  const byId = root instanceof Document ? Document.prototype.getElementById : root.getElementById;
  for (const id of (element.getAttribute('aria-labelledby') ?? '').split(/\s+/)) {
    if (id && byId) labels.push(byId.call(root, id)?.textContent ?? '');
  }
  const text = labels.join(' ').trim();
  const isNamed = text || element.getAttribute('aria-label') || element.getAttribute('placeholder');
  return isNamed ? text : textBefore(element);
}

function textBefore(element) {
  let node = element;
  for (let depth = 0; node && !(node instanceof HTMLFormElement) && depth < 2; depth += 1) {
    const before = node.previousElementSibling;
    if (before) return isLabelLike(before) ? before.textContent.trim() : '';
    node = parentElement(node);
  }
  return '';
}

const CONTROLS = 'form, input, select, textarea, button';
const isLabelLike = (element) =>
  !(element instanceof HTMLFormElement) &&
  !element.matches(CONTROLS) &&
  queryForm.call(element, CONTROLS).length === 0;

// Returns the form of a field or a button, also if there is the root of a shadow tree between them.
function formOf(element) {
  let owner = null;
  if (element instanceof HTMLInputElement) owner = ownerOfInput(element);
  if (element instanceof HTMLButtonElement) owner = ownerOfButton(element);
  for (let node = element; node && !owner; node = composedParent(node)) {
    if (node instanceof HTMLFormElement) owner = node;
  }
  return owner;
}

const buttonText = (button) =>
  normalize(
    [button.textContent, button.getAttribute('value'), button.getAttribute('aria-label')].join(' '),
  );

const ACTIONS = ['login', 'next', 'send', 'registration', 'newsletter', 'search'];

// Returns the groups of fields that belong together: those of a form, and without a form those
// around the nearest button that sends them. `isShown` returns whether a user sees a field.
function groupFields({ fields, buttons, headings, textareas }, isShown) {
  const senders = buttons.filter((button) => {
    const text = buttonText(button);
    return !formOf(button) && ACTIONS.some((action) => means(text, action));
  });
  const containers = new Set();
  for (const sender of senders) {
    for (let node = composedParent(sender); node; node = composedParent(node)) containers.add(node);
  }
  const groups = new Map();
  for (const field of fields) {
    const form = formOf(field.element);
    let key = form;
    for (let node = field.element; node && !key; node = composedParent(node)) {
      if (containers.has(node)) key = node;
    }
    key ??= documentElementOf(document);
    if (!groups.has(key)) groups.set(key, { key, form, fields: [], fixed: [] });
    field.group = groups.get(key);
    field.group[field.isEditable ? 'fields' : 'fixed'].push(field);
  }
  for (const group of groups.values()) {
    const { key, form } = group;
    const isMember = (element) => (form ? formOf(element) === form : isWithin(element, key));
    group.buttons = buttons.filter(isMember);
    group.headings = headings.filter((heading) => isWithin(heading, key));
    group.hasTextarea = textareas.some((area) => isWithin(area, key) && isDrawn(area));
    group.splitCode = splitCodeOf(group);
    group.kind = kindOf(group, isShown);
  }
  return [...groups.values()];
}

// Returns the fields for one character each that follow each other, or null.
function splitCodeOf(group) {
  const isCell = (field) =>
    field.element.maxLength === 1 && field.isDrawn && isFor(field, 'code') && !isOther(field);
  const cells = group.fields.filter(isCell);
  const isSplit = cells.length >= SPLIT_CODE.min && cells.length <= SPLIT_CODE.max;
  return isSplit ? cells : null;
}

// Whether the `autocomplete` of a field names no other purpose.
const isFor = (field, purpose) => field.purposes.every((known) => known === purpose);

const isOther = (field) => means(field.text, 'otherField');

// Whether a field looks like one for a code, and is none for a password or an identifier.
const mayBeCode = (field) =>
  field.tokens.has('one-time-code') ||
  field.element.maxLength === 1 ||
  (meansAny(field.text, CODES) && !means(field.text, 'password') && !isOther(field));

const CODES = ['code', 'bareCode'];

// Whether a field is for a code of a login. Many things have a code: where the words do not show of
// which kind it is, its form has to.
function isCode(field) {
  if (!mayBeCode(field) || !isFor(field, 'code')) return false;
  if (isOther(field) && !meansAny(field.text, CODES)) return false;
  const isCertain = field.purposes.length > 0 || field.element.maxLength === 1;
  return isCertain || means(field.text, 'code') || hasLoginEvidence(field.group);
}

const isNewPassword = (field) =>
  field.tokens.has('new-password') || means(field.text, 'newPassword');

// Whether a field looks like one for a password, and is none for an identifier.
const mayBePassword = (field) =>
  !mayBeCode(field) &&
  (field.type === 'password' ||
    field.tokens.has('current-password') ||
    field.tokens.has('new-password') ||
    (field.type === 'text' && means(field.text, 'password') && !means(field.text, 'identifier')));

// Whether a field is for a password of an account, an existing or a new one.
function isPassword(field) {
  if (!mayBePassword(field) || !isFor(field, 'password')) return false;
  if (field.purposes.length > 0) return !isOther(field) || means(field.text, 'password');
  const isNamed = (text) => means(text, 'password') && !means(text, 'otherField');
  if (field.type === 'password') return !isOther(field) || isNamed(field.label);
  const isAboutElse = meansAny(field.text, ['otherField', 'email', 'phone', 'passwordHelp']);
  const hasName = [field.name, field.id, field.label].some(isNamed);
  return hasName && !isAboutElse && hasLoginEvidence(field.group);
}

// The texts that show for what a group is, those of the most weight first.
function evidenceOf({ form, buttons, headings, key }) {
  const attributes = ['id', 'name', 'class', 'action', 'aria-label'];
  const own = attributes.map((name) => normalize(formAttribute(form ?? key, name)));
  return [
    senderText(buttons),
    own.join(''),
    headings.map((heading) => normalize(heading.textContent)).join(''),
    normalize(titleOf(document)) + normalize(location.pathname),
  ];
}

const isSender = (button) =>
  button.type === 'submit' || button.type === 'image' || !('type' in button);

// Returns the text of the button that sends the form, or of all where none is known to.
function senderText(buttons) {
  const drawn = buttons.filter((button) => isDrawn(button));
  const sender = drawn.find((button) => isSender(button) && formOf(button));
  return (sender ? [sender] : drawn).map(buttonText).join('');
}

// Whether a group shows that it is for a login or a code, by itself or as a step of a page that is.
function hasLoginEvidence({ evidence, fields }) {
  const shows = (text) => meansAny(text, ['login', 'code']);
  const isStep = meansAny(evidence[0], ['next', 'send']) && shows(evidence[3]);
  const isPasswordBox = (field) => field.type === 'password' && field.isDrawn && isPassword(field);
  return isStep || evidence.slice(0, 3).some(shows) || fields.some(isPasswordBox);
}

// Returns the kind of a group: only `login`, `code` and `other` ones get values by their meaning.
function kindOf(group, isShown) {
  const evidence = evidenceOf(group);
  group.evidence = evidence;
  group.isLogin = evidence.some((text) => means(text, 'login'));
  const passwords = group.fields.filter(mayBePassword);
  const shown = passwords.filter(isShown);
  if (shown.length > 1 || passwords.some(isNewPassword)) return 'registration';
  for (const text of evidence) {
    const isRegistration = means(text, 'registration');
    const isLogin = means(text, 'login');
    if (isRegistration && !isLogin) return 'registration';
    if (isLogin) break;
  }
  if (shown.some(isPassword)) return 'login';
  if (isSearch(group)) return 'search';
  const texts = [...evidence.slice(0, 3), ...group.fields.map((field) => field.text)];
  if (texts.some((text) => means(text, 'newsletter'))) return 'newsletter';
  if (group.hasTextarea) return 'message';
  const hasCode = group.fields.some((field) => isCode(field) && field.isDrawn);
  return group.splitCode || hasCode ? 'code' : 'other';
}

function isSearch(group) {
  const [sender, own] = evidenceOf(group);
  if (means(sender, 'search') || means(own, 'search')) return true;
  return group.fields.some(
    (field) =>
      field.type === 'search' ||
      field.name === ' q ' ||
      field.name === ' s ' ||
      means(field.text, 'search') ||
      field.element.closest('[role=search], search') !== null,
  );
}
