// Selectors of fields and controls.

const MAX_SELECTOR = 1024;
const MAX_ATTRIBUTE = 200;
// The attributes whose values last, the best first.
const LASTING = ['name', 'id', 'data-testid', 'aria-label', 'placeholder'];

const quoted = (value) => `"${value.replace(/["\\]/g, '\\$&')}"`;

// Returns the shortest selector of lasting evidence that matches no other text field, as `write`
// looks for it, or null.
function selectorOf({ element, type }, fields) {
  const others = fields.filter((field) => TEXT_TYPES.has(field.type) && field.element !== element);
  const single = attributeSelectors(element);
  const byType = `input[type=${quoted(type)}]`;
  const pairs = single.map((one) => `${one}[type=${quoted(type)}]`);
  return firstUnique(element, [...single, ...pairs, byType], others);
}

// Returns the shortest selector of lasting evidence that matches no other control, or null.
function selectorOfControl({ element }, controls) {
  const others = controls.filter((control) => control.element !== element);
  return firstUnique(element, attributeSelectors(element), others);
}

function attributeSelectors(element) {
  const tag = CSS.escape(element.localName);
  const isUsable = ([, value]) =>
    value && value.length <= MAX_ATTRIBUTE && !/\p{Cc}/u.test(value);
  return LASTING.map((name) => [name, attributeOf(element, name)])
    .filter(isUsable)
    .map(([name, value]) => `${tag}[${name}=${quoted(value)}]`);
}

// Returns the first selector that the element alone matches: of the candidates, or by position.
function firstUnique(element, candidates, others) {
  const isUnique = (selector) =>
    selector.length <= MAX_SELECTOR &&
    matchesAny(element, selector) &&
    !others.some((other) => matchesAny(other.element, selector));
  return [...candidates, pathOf(element)].find(isUnique) ?? null;
}

// Returns the selector of an element's position, from the nearest element with an id or the root of
// its tree.
function pathOf(element) {
  const steps = [];
  for (let node = element; node; node = parentElement(node)) {
    const id = attributeOf(node, 'id');
    if (id && node !== element && id.length <= MAX_ATTRIBUTE) {
      steps.unshift(`[id=${quoted(id)}]`);
      break;
    }
    steps.unshift(`${CSS.escape(node.localName)}:nth-of-type(${positionAmong(node)})`);
  }
  return steps.join(' > ');
}

function positionAmong(element) {
  let position = 1;
  let other = element.previousElementSibling;
  for (; other; other = other.previousElementSibling) {
    if (other.localName === element.localName) position += 1;
  }
  return position;
}
