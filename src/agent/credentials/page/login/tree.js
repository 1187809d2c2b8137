// Access to the document beyond that of dom.js, past properties that elements shadow by their
// names.

const { matches, closest, getAttribute, checkVisibility } = Element.prototype;
const matchesAny = (element, selector) => matches.call(element, selector);
const closestOf = (element, selector) => closest.call(element, selector);
const attributeOf = (element, name) => getAttribute.call(element, name) ?? '';
const bodyOf = getter(Document.prototype, 'body');
const readyStateOf = getter(Document.prototype, 'readyState');
const innerTextOf = getter(HTMLElement.prototype, 'innerText');
const textContentOf = getter(Node.prototype, 'textContent');

// Whether a user may see the texts of an element, also if it has no box of its own.
const isVisible = (element) =>
  checkVisibility.call(element, { opacityProperty: true, visibilityProperty: true });

// The document and the shadow roots in it, when `findRoots` was called.
let treeRoots = [document];

function findRoots() {
  treeRoots = [document];
  visitElements((element) => {
    const shadow = shadowOf(element);
    if (shadow) treeRoots.push(shadow);
  });
}

const MAX_FOUND = 200;

// Returns the elements that match a selector, up to `max`, those of shadow trees at the end.
function findAll(selector, max = MAX_FOUND) {
  const found = treeRoots.flatMap((root) => {
    const query = root instanceof Document ? queryDocument : root.querySelectorAll;
    return [...query.call(root, selector)];
  });
  return found.slice(0, max);
}

// Returns the text of the elements that an attribute names by their ids.
function describedBy(element, attribute) {
  const root = rootOf(element);
  const find = root instanceof Document ? Document.prototype.getElementById : root.getElementById;
  const ids = attributeOf(element, attribute).split(/\s+/).filter(Boolean);
  const named = find ? ids.map((id) => find.call(root, id)).filter(Boolean) : [];
  return clip(named.map(textContentOf).join(' '), MAX_HINT);
}
