// Writes values as a user would, and submits their form.

// The attempts to write a field that the page replaces meanwhile.
const MAX_ATTEMPTS = 4;

// Moves the focus. A page without the focus gets the events that it would get with it.
function focus(element) {
  const hasFocus = Document.prototype.hasFocus.call(document);
  element.focus({ preventScroll: true });
  if (hasFocus) return;
  element.dispatchEvent(new FocusEvent('focus', { composed: true }));
  element.dispatchEvent(new FocusEvent('focusin', { bubbles: true, composed: true }));
}

function blur(element) {
  const hasFocus = Document.prototype.hasFocus.call(document);
  element.blur();
  if (hasFocus) return;
  element.dispatchEvent(new FocusEvent('blur', { composed: true }));
  element.dispatchEvent(new FocusEvent('focusout', { bubbles: true, composed: true }));
}

function enter(element, text) {
  const key = { bubbles: true, composed: true, key: 'Unidentified' };
  masks.remember(element, text);
  masks.mask(element);
  element.dispatchEvent(new KeyboardEvent('keydown', key));
  setValue(element, text);
  const input = { bubbles: true, composed: true, inputType: 'insertReplacementText' };
  element.dispatchEvent(new InputEvent('input', input));
  element.dispatchEvent(new KeyboardEvent('keyup', key));
  element.dispatchEvent(new Event('change', { bubbles: true }));
}

// Looks for the field of a value anew, with all evidence, and verifies the origin.
function find(request, name) {
  if (!isPermittedFrame(request.policy)) return { outcome: 'refused_origin' };
  if (!areOwnersDrawn()) return { outcome: 'hidden' };
  return new Matcher(request).match().get(name);
}

const elementsOf = ({ fields }) => (fields ?? []).map(({ element }) => element);
const haveValues = (elements, parts) =>
  elements.length === parts.length &&
  elements.every((element, index) => element.value === parts[index]);
const areSame = (some, others) =>
  some.length === others.length && some.every((element, index) => element === others[index]);

// Writes one value, and returns its outcome and its last element.
function writeValue(request, name, value) {
  let wasWritten = false;
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
    const target = find(request, name);
    const elements = elementsOf(target);
    if (elements.length === 0) return { outcome: wasWritten ? 'unknown' : target.outcome };
    const parts = elements.length > 1 ? [...value] : [value];
    focus(elements[0]);
    // The page may have replaced the field.
    if (!areSame(elementsOf(find(request, name)), elements)) continue;
    wasWritten = true;
    elements.forEach((element, index) => {
      if (index > 0) focus(element);
      if (element.isConnected) enter(element, parts[index]);
    });
    blur(elements.at(-1));
    const isThere = elements.every((element) => element.isConnected);
    if (isThere && haveValues(elements, parts)) return { outcome: 'filled', element: elements.at(-1) };
    const after = elementsOf(find(request, name));
    if (haveValues(after, parts)) {
      after.forEach((field) => masks.mask(field));
      return { outcome: 'filled', element: after.at(-1) };
    }
    // The page has changed the value, which another attempt would not prevent.
    if (areSame(after, elements) && elements.length === 1) break;
  }
  return { outcome: wasWritten ? 'unknown' : 'not_found' };
}

const isEnabled = (element) => !element.matches(':disabled');

// Submits the form of a field as a click on its button would, and returns whether the page took it.
function submit(request, element) {
  const form = formOf(element);
  // The page may have replaced the buttons.
  const { groups } = new Matcher(request);
  const group = groups.find(({ fields }) => fields.some((field) => field.element === element));
  const { policy } = request;
  if (!group || !isPermittedFrame(policy) || !hasPermittedTarget(form, group.buttons, policy)) {
    return false;
  }
  const buttons = group.buttons.filter(isDrawn);
  if (!form) return submitWithoutForm(element, buttons.filter(isEnabled));
  const senders = buttons.filter(isSender);
  const button = senders.find((sender) => means(buttonText(sender), 'login')) ?? senders[0];
  if (button && !isEnabled(button)) return false;
  let isTaken = false;
  const submission = new Submission(form);
  if (button) {
    isTaken = click(button);
  } else {
    HTMLFormElement.prototype.requestSubmit.call(form);
  }
  submission.end();
  return !submission.isCancelled && (isTaken || submission.hasStarted);
}

const { addEventListener, removeEventListener } = EventTarget.prototype;

// The submission of a form. It is cancelled if it would put the values into an address, as a form
// does that waits for its script. If a listener of the page keeps that event from this one, the
// values are taken out of the data of the form.
class Submission {
  constructor(form) {
    this.form = form;
    // The event `submit`.
    this.event = null;
    this.isCancelled = false;
    const root = Node.prototype.getRootNode.call(form);
    this.top = root instanceof Document ? window : root;
    this.targets = [this.top];
    this.changeListeners(addEventListener);
    addEventListener.call(this.top, 'formdata', this, { capture: true });
  }

  get hasStarted() {
    return this.event !== null;
  }

  handleEvent(event) {
    if (event.target !== this.form) return;
    if (event.type === 'submit') this.checkEvent(event);
    else this.checkData(event.formData);
  }

  // Called after the page's listeners of each target, which were added before.
  checkEvent(event) {
    const isFirst = !this.hasStarted;
    this.event = event;
    if (isFirst) {
      this.targets = event.composedPath();
      this.changeListeners(addEventListener);
    }
    const isEnd = event.currentTarget === this.top && event.eventPhase === Event.BUBBLING_PHASE;
    const isLast = isEnd || event.cancelBubble;
    if (!isLast || event.defaultPrevented || !sendsInAddress(this.form, event.submitter)) return;
    event.preventDefault();
    this.isCancelled = true;
  }

  // Called when a listener collects the data, or the browser, which does so after all of them.
  checkData(data) {
    const isCollected = this.hasStarted && this.event.eventPhase === Event.NONE;
    if (!isCollected || !sendsInAddress(this.form, this.event.submitter)) return;
    for (const name of [...data.keys()]) data.delete(name);
    this.isCancelled = true;
  }

  changeListeners(change) {
    for (const target of this.targets) {
      for (const capture of [true, false]) change.call(target, 'submit', this, { capture });
    }
  }

  end() {
    this.changeListeners(removeEventListener);
    removeEventListener.call(this.top, 'formdata', this, { capture: true });
  }
}

function sendsInAddress(form, submitter) {
  const action = submitter?.hasAttribute('formaction') ? submitter.formAction : formAction(form);
  const method = submitter?.formMethod || formMethod(form);
  return method === 'get' && !action.startsWith('javascript:');
}

// Clicks a button, and returns whether a script of the page has handled that by itself.
function click(button) {
  let clicked = null;
  const handle = (event) => (clicked = event);
  window.addEventListener('click', handle, { capture: true });
  HTMLElement.prototype.click.call(button);
  window.removeEventListener('click', handle, { capture: true });
  return !('type' in button) || (clicked?.defaultPrevented ?? false);
}

function submitWithoutForm(element, buttons) {
  const withMeaning = (meaning) => buttons.filter((button) => means(buttonText(button), meaning));
  const choices = [withMeaning('login'), withMeaning('next'), withMeaning('send'), buttons];
  const [button] = choices.find((choice) => choice.length === 1) ?? [];
  if (button) {
    HTMLElement.prototype.click.call(button);
    return true;
  }
  const enterKey = { code: 'Enter', key: 'Enter', keyCode: 13 };
  const key = { bubbles: true, cancelable: true, composed: true, ...enterKey };
  for (const type of ['keydown', 'keypress', 'keyup']) {
    element.dispatchEvent(new KeyboardEvent(type, key));
  }
  return true;
}
