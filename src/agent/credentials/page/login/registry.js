// The elements that the last inspection has returned, by their references.

const documentToken = [...crypto.getRandomValues(new Uint8Array(8))]
  .map((byte) => byte.toString(16).padStart(2, '0'))
  .join('');

const registered = new Map();
// The references of all inspections: an element keeps its own.
const references = new WeakMap();
let lastReference = 0;

// Registers the element of a control for a kind of action, and returns its reference.
function register({ element, label }, action) {
  if (!references.has(element)) {
    lastReference += 1;
    references.set(element, `${documentToken}-${lastReference}`);
  }
  const reference = references.get(element);
  registered.set(reference, { element, label, action });
  return reference;
}
