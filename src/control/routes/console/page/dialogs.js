// Modal dialogs: confirmations, forms, and secrets that are shown once.

import { announce, button, errorPanel, h } from './dom.js';

let dialogs = 0;

/** Opens a dialog and returns it. It is removed when it is closed, and the focus returns. */
function open(title, content, isAlert = false) {
  const id = `dialog-${dialogs += 1}`;
  const dialog = h('dialog', { 'aria-labelledby': id, role: isAlert ? 'alertdialog' : undefined }, h('h2', { id }, title), content);
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks for confirmation, runs `action` and announces that it is `done`. An error is shown in the
 * dialog, which stays open. Returns whether the action was done.
 */
export function confirmAction({ title, text, label, action, done }) {
  return new Promise(resolve => {
    let isDone = false;
    const errors = h('div');
    const confirm = button(label, async () => {
      confirm.disabled = true;
      try {
        await action();
        isDone = true;
        dialog.close();
        if (done) announce(done);
      } catch (error) {
        errors.replaceChildren(errorPanel(error));
        confirm.disabled = false;
        confirm.focus();
      }
    }, { kind: 'danger' });
    const cancel = button('Cancel', () => dialog.close());
    const dialog = open(title, [h('p', {}, text), errors, h('div', { class: 'actions' }, cancel, confirm)], true);
    cancel.focus();
    dialog.addEventListener('close', () => resolve(isDone));
  });
}

/** Returns the control of a form's field, with its label and hint. */
function control({ name, label, type = 'text', hint, options, value, ...attributes }, form) {
  const id = `${form}-${name}`;
  const common = { id, name, 'aria-describedby': hint && `${id}-hint`, ...attributes };
  if (type === 'checkbox') {
    return h('div', { class: 'field' }, h('label', { class: 'check', for: id }, h('input', { ...common, type, checked: value }), label),
      hint && h('p', { class: 'hint', id: `${id}-hint` }, hint));
  }
  const input = options
    ? h('select', common, options.map(([option, text]) => h('option', { value: option, selected: option === value }, text)))
    : h('input', { autocomplete: 'off', ...common, type, value });
  return h('div', { class: 'field' }, h('label', { for: id }, label), input, hint && h('p', { class: 'hint', id: `${id}-hint` }, hint));
}

/** Returns the values of a form: texts, numbers and booleans. Empty fields are left out. */
function values(form) {
  const result = {};
  for (const input of form.elements) {
    if (!input.name) continue;
    if (input.type === 'checkbox') result[input.name] = input.checked;
    else if (input.value.trim() === '') continue;
    else result[input.name] = input.type === 'number' ? Number(input.value) : input.value.trim();
  }
  return result;
}

/**
 * Asks for the values of `fields`, passes them to `action` and announces what is `done`. An error is
 * shown in the dialog, which stays open with what was entered. Returns the result of the action.
 */
export function formDialog({ title, text, fields, label, action, done }) {
  return new Promise(resolve => {
    let result;
    const errors = h('div');
    const submit = h('button', { type: 'submit', class: 'primary' }, label);
    const onsubmit = async event => {
      event.preventDefault();
      submit.disabled = true;
      try {
        result = await action(values(form)) ?? true;
        dialog.close();
        if (done) announce(done);
      } catch (error) {
        errors.replaceChildren(errorPanel(error));
        submit.disabled = false;
        if (!form.contains(document.activeElement)) submit.focus();
      }
    };
    const form = h('form', { method: 'dialog', onsubmit }, fields.map(field => control(field, `form-${dialogs}`)), errors,
      h('div', { class: 'actions' }, button('Cancel', () => dialog.close()), submit));
    const dialog = open(title, [text && h('p', {}, text), form]);
    form.elements[0].focus();
    dialog.addEventListener('close', () => resolve(result));
  });
}

/** Shows a secret with a button that copies it. */
export function secretDialog({ title, text, label, value }) {
  const input = h('input', { readonly: true, value, 'aria-label': label, class: 'secret', onfocus: () => input.select() });
  const copy = async () => {
    input.select();
    // Outside of HTTPS and localhost there is no clipboard.
    const isCopied = await navigator.clipboard?.writeText(value).then(() => true, () => false) ?? document.execCommand('copy');
    status.textContent = isCopied ? 'Copied.' : 'Press Ctrl+C to copy.';
  };
  const status = h('p', { class: 'hint', role: 'status' });
  const dialog = open(title, [h('p', {}, text), input, status,
    h('div', { class: 'actions' }, button('Close', () => dialog.close()), button('Copy', copy, { kind: 'primary' }))]);
  input.focus();
}
