// Access to the DOM. A page's elements can shadow the properties of documents and forms by their
// names, also in an isolated world, so these are read through their prototypes.

const getter = (prototype, name) => {
  const { get } = Object.getOwnPropertyDescriptor(prototype, name);
  return (object) => get.call(object);
};
const setter = (prototype, name) => {
  const { set } = Object.getOwnPropertyDescriptor(prototype, name);
  return (object, value) => set.call(object, value);
};

const queryDocument = Document.prototype.querySelectorAll;
const queryForm = Element.prototype.querySelectorAll;
const formAttribute = (form, name) => Element.prototype.getAttribute.call(form, name) ?? '';
const formAction = getter(HTMLFormElement.prototype, 'action');
const formMethod = getter(HTMLFormElement.prototype, 'method');
const ownerOfInput = getter(HTMLInputElement.prototype, 'form');
const ownerOfButton = getter(HTMLButtonElement.prototype, 'form');
const setValue = setter(HTMLInputElement.prototype, 'value');
const parentElement = getter(Node.prototype, 'parentElement');
const parentNode = getter(Node.prototype, 'parentNode');
const { contains: containsNode, getRootNode } = Node.prototype;
const rootOf = (node) => getRootNode.call(node);
const openRootOf = getter(Element.prototype, 'shadowRoot');
const slotOf = getter(Element.prototype, 'assignedSlot');
const documentElementOf = getter(Document.prototype, 'documentElement');
const titleOf = getter(Document.prototype, 'title');
const scrollerOf = getter(Document.prototype, 'scrollingElement');

// The closed shadow roots that were adopted, by their hosts.
const closedRoots = new Map();

const shadowOf = (element) => openRootOf(element) ?? closedRoots.get(element) ?? null;

// Adopts the closed shadow roots that these fields are in, and returns their number.
function adopt(...fields) {
  const before = closedRoots.size;
  for (const field of fields) {
    let root = field.getRootNode();
    while (root instanceof ShadowRoot) {
      if (root.mode === 'closed') closedRoots.set(root.host, root);
      root = root.host.getRootNode();
    }
  }
  return closedRoots.size - before;
}

// Returns the parent in the tree of what is drawn.
function drawnParent(element) {
  return slotOf(element) ?? composedParent(element);
}

// Returns the parent in the tree of documents and their shadow roots.
function composedParent(element) {
  return parentElement(element) ?? hostOf(element);
}

function hostOf(element) {
  const parent = parentNode(element);
  return parent instanceof ShadowRoot ? parent.host : null;
}

function isWithin(element, ancestor) {
  let node = element;
  while (!containsNode.call(ancestor, node)) {
    const root = rootOf(node);
    if (!(root instanceof ShadowRoot)) return false;
    node = root.host;
  }
  return true;
}

// Calls `visit` with all elements, those of a shadow root after its host.
function visitElements(visit, root = document) {
  const query = root instanceof Document ? queryDocument : root.querySelectorAll;
  for (const element of query.call(root, '*')) visitElement(visit, element);
}

function visitElement(visit, element) {
  visit(element);
  const shadow = shadowOf(element);
  if (shadow) visitElements(visit, shadow);
}

// The smallest side of a field that a user sees, in pixels.
const MIN_SIDE = 8;
// The least opacity of a field that a user sees.
const MIN_OPACITY = 0.1;

// Whether a user can see an element once it is scrolled to. Elements in front of it and clipping do
// not count: see isReachable.
function isDrawn(element) {
  if (!element.isConnected) return false;
  const box = element.getBoundingClientRect();
  if (box.width < MIN_SIDE || box.height < MIN_SIDE) return false;
  if (getComputedStyle(element).visibility !== 'visible') return false;
  let opacity = 1;
  let scrolls = false;
  for (let node = element; node; node = drawnParent(node)) {
    const style = getComputedStyle(node);
    scrolls ||= node !== element && /auto|scroll/.test(style.overflow);
    if (style.display === 'none' || style.contentVisibility === 'hidden') return false;
    opacity *= Number(style.opacity);
    const filter = /opacity\(([\d.]+)(%?)\)/.exec(style.filter);
    if (filter) opacity *= Number(filter[1]) / (filter[2] ? 100 : 1);
    if (opacity < MIN_OPACITY) return false;
    const attribute = (name) => Element.prototype.getAttribute.call(node, name);
    if (attribute('inert') !== null || attribute('aria-hidden') === 'true') return false;
  }
  return scrolls || element.ownerDocument !== document || isOnPage(box);
}

// Whether the frames around this one that it can reach are drawn.
function areOwnersDrawn() {
  for (let frame = window; frame.frameElement; frame = frame.parent) {
    if (!isDrawn(frame.frameElement)) return false;
  }
  return true;
}

// Whether a box is within the area that can be scrolled to.
function isOnPage(box) {
  const scroller = scrollerOf(document);
  const width = Math.max(innerWidth, scroller?.scrollWidth ?? 0);
  const height = Math.max(innerHeight, scroller?.scrollHeight ?? 0);
  const [left, top] = [box.left + scrollX, box.top + scrollY];
  return left + box.width > 0 && top + box.height > 0 && left < width && top < height;
}

// The points of a field, as parts of its size, of which one has to be in front.
const POINTS = [[0.5, 0.5], [0.25, 0.5], [0.75, 0.5], [0.5, 0.25], [0.5, 0.75]];

// Whether a user could click an element: scrolls to it and looks for elements in front of it.
function isReachable(element) {
  if (!POINTS.some((point) => positionOf(element, point))) {
    element.scrollIntoView({ behavior: 'instant', block: 'center', inline: 'nearest' });
  }
  const root = element.getRootNode();
  const { elementsFromPoint } = Document.prototype;
  const find = root instanceof Document ? elementsFromPoint : root.elementsFromPoint;
  return POINTS.some((point) => {
    const position = positionOf(element, point);
    const hits = position ? find.call(root, ...position) : [];
    const index = hits.indexOf(element);
    return index >= 0 && hits.slice(0, index).every((front) => isLabelOf(front, element));
  });
}

// Whether an element is a part of a field's label that lets the field shine through.
function isLabelOf(front, field) {
  const label = Element.prototype.closest.call(front, 'label');
  if (!(label instanceof HTMLLabelElement) || label.control !== field) return false;
  for (let node = front; node && !isWithin(field, node); node = drawnParent(node)) {
    const { backgroundColor, backgroundImage } = getComputedStyle(node);
    const isTransparent = /^rgba\(.*, 0\)$|^transparent$/.test(backgroundColor);
    if (!isTransparent || backgroundImage !== 'none') return false;
  }
  return true;
}

// Returns the position of a point of an element in the viewport, or null if it is outside.
function positionOf(element, [across, down]) {
  const box = element.getBoundingClientRect();
  const [x, y] = [box.left + box.width * across, box.top + box.height * down];
  return x >= 0 && y >= 0 && x < innerWidth && y < innerHeight ? [x, y] : null;
}
