// A click on one element that the inspection has returned.

// Returns the outcome. All evidence is collected anew, in the same turn as the click.
function act(reference, kind, policy) {
  const known = registered.get(reference);
  if (!known?.element.isConnected) return 'gone';
  if (known.action !== kind) return 'wrong_kind';
  const isPermitted = kind === 'dismiss' ? isPermittedPage(policy) : isPermittedFrame(policy);
  if (!isPermitted) return 'refused_origin';
  const control = new Control(known.element);
  if (control.label !== known.label) return 'gone';
  if (kind === 'check' && control.isChecked) return 'unchanged';
  const { element, drawn } = control;
  if (!drawn || !areOwnersDrawn()) return 'hidden';
  if (matchesAny(element, ':disabled, [aria-disabled=true]')) return 'disabled';
  if (kind !== 'dismiss' && !isPermittedTarget(control, policy)) return 'refused_target';
  const position = frontPosition(drawn);
  if (!position) return 'covered';
  press(drawn, position);
  return 'clicked';
}

// Whether the page that the frame is in has a permitted origin.
function isPermittedPage(policy) {
  const ancestors = [...location.ancestorOrigins];
  return isPermittedUrl(ancestors.at(-1) ?? location.origin, policy);
}

// Whether the link or the form of a control leads to a permitted origin, or is a script of the
// page.
function isPermittedTarget({ target }, policy) {
  const url = target ? URL.parse(target) : null;
  const leaves = url !== null && /^(https?|ftp|file|data|blob):$/.test(url.protocol);
  return !leaves || isPermittedUrl(url.href, policy);
}

// Scrolls to an element, and returns a position at which nothing is in front of it, or null.
function frontPosition(element) {
  if (!POINTS.some((point) => positionOf(element, point))) {
    element.scrollIntoView({ behavior: 'instant', block: 'center', inline: 'nearest' });
  }
  const root = rootOf(element);
  const { elementFromPoint } = Document.prototype;
  const find = root instanceof Document ? elementFromPoint : root.elementFromPoint;
  const positions = POINTS.map((point) => positionOf(element, point)).filter(Boolean);
  const isFront = (position) => {
    const front = find.call(root, ...position);
    return front !== null && isWithin(front, element);
  };
  return positions.find(isFront) ?? null;
}

// Presses an element as a click of the mouse would.
function press(element, [clientX, clientY]) {
  const init = { bubbles: true, cancelable: true, composed: true, clientX, clientY, detail: 1 };
  const pointer = { ...init, isPrimary: true, pointerId: 1, pointerType: 'mouse' };
  element.dispatchEvent(new PointerEvent('pointerdown', { ...pointer, buttons: 1 }));
  element.dispatchEvent(new MouseEvent('mousedown', { ...init, buttons: 1 }));
  element.dispatchEvent(new PointerEvent('pointerup', pointer));
  element.dispatchEvent(new MouseEvent('mouseup', init));
  if (element instanceof HTMLElement) {
    HTMLElement.prototype.click.call(element);
  } else {
    element.dispatchEvent(new MouseEvent('click', init));
  }
}
