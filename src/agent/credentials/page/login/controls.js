// The links, buttons, options and boxes that a user can click.

const CONTROL =
  'a[href], button, summary, input[type=submit], input[type=button], input[type=image], ' +
  'input[type=radio], input[type=checkbox], [role=button], [role=link], [role=option], ' +
  '[role=radio], [role=checkbox], [role=switch], [role=menuitem], [role=tab]';
// An element that a script makes a control, unless it contains others, or has a value.
const SCRIPTED = ':is([onclick], [tabindex="0"]):not(input, select, textarea)';
const MAX_CONTROLS = 600;
const MAX_FORM_CONTROLS = 100;
// An element with a longer text is not one control, but contains others.
const MAX_CONTROL_TEXT = 200;
const BOXES =
  'input[type=checkbox], input[type=radio], [role=checkbox], [role=radio], [role=switch]';
const PAGE_FRAME = 'footer, nav, [role=contentinfo], [role=navigation]';

const isInput = (element) => element instanceof HTMLInputElement;

const contains = (element, selector) =>
  Element.prototype.querySelector.call(element, selector) !== null;

function isControl(element) {
  if (matchesAny(element, CONTROL)) return true;
  return matchesAny(element, SCRIPTED) && !contains(element, `${CONTROL}, ${SCRIPTED}, input`);
}

// Returns the control that a text belongs to: also the box of a label.
function controlAround(element) {
  for (let node = element; node; node = composedParent(node)) {
    if (isControl(node) && textContentOf(node).trim().length <= MAX_CONTROL_TEXT) return node;
    const control = node instanceof HTMLLabelElement ? node.control : null;
    if (control && matchesAny(control, BOXES)) return control;
  }
  return null;
}

class Control {
  constructor(element) {
    this.element = element;
    this.isBox = matchesAny(element, BOXES);
    this.label = clip(labelOfControl(element), MAX_CONTROL_TEXT + 1);
    this.text = normalize(this.label);
  }

  get isShown() {
    this.shown ??= Boolean(this.drawn);
    return this.shown;
  }

  // The element that a user sees: a box with a style of its own may be invisible behind its label.
  get drawn() {
    const labels = isInput(this.element) && this.isBox ? [...(this.element.labels ?? [])] : [];
    return [this.element, ...labels].find(isDrawn) ?? null;
  }

  get isChecked() {
    return isInput(this.element)
      ? this.element.checked
      : attributeOf(this.element, 'aria-checked') === 'true' ||
          attributeOf(this.element, 'aria-selected') === 'true';
  }

  get isInPageFrame() {
    return closestOf(this.element, PAGE_FRAME) !== null;
  }

  // The address that a click leads to by itself, or null.
  get target() {
    const { element } = this;
    if (element instanceof HTMLAnchorElement) return element.href;
    const isSubmit =
      (element instanceof HTMLButtonElement && element.type === 'submit') ||
      (isInput(element) && (element.type === 'submit' || element.type === 'image'));
    const form = isSubmit ? formOf(element) : null;
    if (!form) return null;
    return element.hasAttribute('formaction') ? element.formAction : formAction(form);
  }

  get targetHost() {
    const url = this.target ? URL.parse(this.target) : null;
    return url && /^https?:$/.test(url.protocol) ? url.hostname : null;
  }

  means(...meanings) {
    return meanings.some((meaning) => means(this.text, meaning));
  }
}

function labelOfControl(element) {
  const attribute = (name) => attributeOf(element, name);
  const isTyped = isInput(element);
  if (isTyped && /^(radio|checkbox)$/.test(element.type)) return labelOfBox(element);
  const named = attribute('aria-label') || describedBy(element, 'aria-labelledby');
  const text = isTyped || !(element instanceof HTMLElement) ? '' : innerTextOf(element);
  const own = text.trim() || named || (isTyped ? attribute('value') : '');
  // A short visible text, such as a sign, is described by its name.
  const label = named && own.length < 3 ? named : own;
  return label || attribute('title') || attribute('alt') || imageText(element);
}

// Returns the label of a box, or else the text that follows it.
function labelOfBox(element) {
  const labels = [...(element.labels ?? [])].map(textContentOf).join(' ');
  const named = labels.trim() || describedBy(element, 'aria-labelledby');
  const label = named || attributeOf(element, 'aria-label');
  if (label) return label;
  for (let node = element.nextSibling; node; node = node.nextSibling) {
    const text = textContentOf(node).trim();
    if (node instanceof Element && !isLabelLike(node)) break;
    if (text) return text;
  }
  return '';
}

function imageText(element) {
  const images = 'img[alt], svg[aria-label], svg title';
  const image = Element.prototype.querySelector.call(element, images);
  if (!image) return '';
  return attributeOf(image, 'alt') || attributeOf(image, 'aria-label') || textContentOf(image);
}

// Returns the controls with a text, of which one within another with the same text counts alone. On
// a page with too many, those of the forms count too.
function collectControls({ groups }) {
  const controls = [];
  const byText = new Map();
  const first = findAll(`${CONTROL}, ${SCRIPTED}`, MAX_CONTROLS).filter(isControl);
  const ofForms = groups.flatMap(({ buttons }) => buttons).slice(0, MAX_FORM_CONTROLS);
  for (const element of new Set([...first, ...ofForms])) {
    const control = new Control(element);
    if (!control.label || control.label.length > MAX_CONTROL_TEXT) continue;
    const outer = byText.get(control.text);
    if (outer && isWithin(element, outer.element)) controls.splice(controls.indexOf(outer), 1);
    byText.set(control.text, control);
    controls.push(control);
  }
  return controls;
}
