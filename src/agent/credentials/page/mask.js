// Shows dots in the place of filled values.

const MASK = '-webkit-text-security';
// The changes of a masked field's style that are undone. A page that repeats its change wins.
const MAX_MASK_REPAIRS = 100;
// The values for which fields are masked: those that were filled, and those of masked fields that
// the page has removed.
const MAX_VALUES = 64;
// The frames in which a field is looked at that was added, or was there at the fill: its page may
// set its value later. And the most such fields.
const MAX_CHECKS = 60;
const MAX_PENDING = 512;
// The changed inputs that are looked at before a frame.
const MAX_CHANGED = 2048;
// The changes of a field after which it is looked at.
const WATCHED = ['style', 'class', 'hidden', 'type', 'value'];

class Masks {
  constructor() {
    // The number of repairs of each masked field.
    this.repairs = new WeakMap();
    this.values = new Set();
    // The fields to look at in the next frames, with the number of checks left.
    this.pending = new Map();
    this.roots = new WeakSet();
    this.observer = new MutationObserver((records) => this.update(records));
  }

  // Masks other fields that get this value, too.
  remember(element, value) {
    if (value === '') return;
    const key = keyOf(element, value);
    this.values.delete(key);
    this.values.add(key);
    if (this.values.size > MAX_VALUES) this.values.delete(this.values.values().next().value);
  }

  // Makes the browser draw dots for the text of a field until it is empty, also if its type
  // changes, and keep the text out of its history of forms.
  mask(element) {
    element.style.setProperty(MASK, 'disc', 'important');
    if (this.repairs.has(element)) return;
    this.repairs.set(element, 0);
    element.setAttribute(TOKENS, tokensOf(element));
    element.setAttribute('autocomplete', 'off');
    element.addEventListener('input', () => {
      if (element.value === '') this.unmask(element);
    });
  }

  unmask(element) {
    if (!this.repairs.delete(element)) return;
    element.style.removeProperty(MASK);
    const tokens = element.getAttribute(TOKENS);
    element.removeAttribute(TOKENS);
    // The page has set others, or the masks of another fill have restored them.
    if (tokens === null || element.getAttribute('autocomplete') !== 'off') return;
    if (tokens) element.setAttribute('autocomplete', tokens);
    else element.removeAttribute('autocomplete');
  }

  // Watches the document and all shadow trees in it that are known, and looks at their inputs for
  // some frames: a script may set their value without another change.
  watchAll() {
    this.watch(document);
    visitElements((element) => {
      this.watchShadow(element);
      if (element instanceof HTMLInputElement) this.checkLater(element);
    });
  }

  watchShadow(element) {
    const shadow = shadowOf(element);
    if (shadow) this.watch(shadow);
  }

  watch(root) {
    if (this.roots.has(root)) return;
    this.roots.add(root);
    this.observer.observe(root, { attributeFilter: WATCHED, childList: true, subtree: true });
  }

  // Masks fields that were changed, added or replaced, before they are drawn.
  update(records) {
    const [changed, removed, added] = [new Set(), new Set(), new Set()];
    for (const { type, target, removedNodes, addedNodes } of records) {
      if (type === 'attributes') changed.add(target);
      for (const node of removedNodes) this.visitInputs(node, (input) => removed.add(input));
      for (const node of addedNodes) this.visitInputs(node, (input) => added.add(input));
    }
    this.checkWithin(changed);
    const old = [...removed].filter((input) => this.repairs.has(input) && !input.isConnected);
    for (const input of old) this.remember(input, input.value);
    for (const input of added) {
      const isSame = ({ id, name }) => (id || name) && name === input.name && id === input.id;
      if (old.some(isSame)) this.mask(input);
      else if (!this.check(input)) this.checkLater(input);
    }
  }

  // Masks a field that has a filled value. Returns whether it is masked.
  check(element) {
    if (this.repairs.has(element)) this.repair(element);
    else if (this.values.has(keyOf(element, element.value))) this.mask(element);
    return this.repairs.has(element);
  }

  // Looks at the inputs in changed elements: a change of an element can show those in it.
  checkWithin(elements) {
    const inputs = new Set();
    for (const element of elements) {
      if (inputs.size >= MAX_CHANGED) break;
      if (element instanceof HTMLInputElement) inputs.add(element);
      else for (const input of queryForm.call(element, 'input')) inputs.add(input);
    }
    for (const input of inputs) this.check(input);
  }

  checkLater(input) {
    if (this.pending.size === 0) requestAnimationFrame(() => this.checkPending());
    if (this.pending.size < MAX_PENDING) this.pending.set(input, MAX_CHECKS);
  }

  checkPending() {
    for (const [input, left] of this.pending) {
      if (left === 0 || !input.isConnected || this.check(input)) this.pending.delete(input);
      else this.pending.set(input, left - 1);
    }
    if (this.pending.size > 0) requestAnimationFrame(() => this.checkPending());
  }

  repair(element) {
    const repairs = this.repairs.get(element);
    const isMasked = element.style.getPropertyValue(MASK) === 'disc';
    if (isMasked || element.value === '' || repairs >= MAX_MASK_REPAIRS) return;
    this.repairs.set(element, repairs + 1);
    element.style.setProperty(MASK, 'disc', 'important');
  }

  // Calls `visit` with the inputs of a tree that was added or removed, and watches the shadow trees
  // in it.
  visitInputs(node, visit) {
    if (!(node instanceof Element)) return;
    const visitOne = (element) => {
      if (element instanceof HTMLInputElement) visit(element);
      this.watchShadow(element);
    };
    for (const element of [node, ...queryForm.call(node, '*')]) visitElement(visitOne, element);
  }
}

// A field for one character is masked for a character of a code only.
const keyOf = (element, value) => `${element.maxLength === 1 ? 'cell' : 'text'} ${value}`;

// Those of this fill: each has a world of its own, and the masks of all remain.
const masks = new Masks();
