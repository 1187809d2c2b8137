// The fields that the person fills in. Their values are in the page's elements and in the request, and
// nowhere else.

import { h, icon } from './element.js';
import { t } from './language.js';

const LABELS = {
  identifier: 'field_identifier', password: 'field_password', code: 'field_code',
  totp_code: 'field_totp_code', totp_secret: 'field_totp_secret', text: 'field_text',
};
const AUTOCOMPLETE = { identifier: 'username', password: 'current-password', code: 'one-time-code', totp_code: 'one-time-code' };
const CLASSES = { password: 'password', code: 'code', totp_code: 'code' };
const INPUT_MODES = ['text', 'numeric', 'decimal', 'tel', 'email', 'url'];
/** Kinds that few sites mark as required, and all need. */
const NEEDED_KINDS = ['identifier', 'password'];
/** Kinds whose values are entered again after a rejection. */
const SECRET_KINDS = ['password', 'code', 'totp_code', 'totp_secret'];

/** Removes spaces that people type or paste, but not from a password. */
function clean(kind, value) {
  if (kind === 'password') return value;
  return ['code', 'totp_code', 'totp_secret'].includes(kind) ? value.replace(/\s/g, '') : value.trim();
}

/** A field with its label, its hint, and the error next to it. */
class Field {
  constructor(field, index, count) {
    this.field = field;
    const id = `field-${index}`;
    this.input = h('input', {
      id, name: id, type: field.kind === 'password' ? 'password' : 'text',
      class: CLASSES[field.kind],
      autocomplete: AUTOCOMPLETE[field.kind] ?? 'off', autocapitalize: 'none', autocorrect: 'off', spellcheck: 'false',
      inputmode: INPUT_MODES.includes(field.inputMode) ? field.inputMode : field.kind === 'totp_code' && 'numeric',
      enterkeyhint: index === count - 1 ? 'go' : 'next', placeholder: field.placeholder,
      dir: field.kind === 'text' ? 'auto' : 'ltr',
      'aria-required': String(field.isRequired), oninput: () => this.setError(''),
    });
    this.error = h('p', { id: `${id}-error`, class: 'field-error', hidden: true }, icon('alert'), h('span'));
    const hint = field.hint && h('p', { id: `${id}-hint`, class: 'hint', dir: 'auto' }, field.hint);
    this.describedBy = hint ? [hint.id] : [];
    const label = h('label', { for: id },
      h('span', { dir: 'auto' }, field.label || t(LABELS[field.kind])),
      !field.isRequired && !NEEDED_KINDS.includes(field.kind) && h('span', { class: 'optional' }, t('field_optional')));
    this.element = h('div', { class: 'field' }, label,
      h('div', { class: 'control' }, this.input, field.kind === 'password' && this.#reveal()), hint, this.error);
    this.setError('');
  }

  /** Returns the button that shows the password. */
  #reveal() {
    const button = h('button', { type: 'button', class: 'reveal', 'aria-pressed': 'false', 'aria-controls': this.input.id, 'aria-label': t('show_password') }, icon('eye'));
    button.addEventListener('click', () => {
      const isShown = this.input.type === 'password';
      this.input.type = isShown ? 'text' : 'password';
      button.setAttribute('aria-pressed', String(isShown));
      button.replaceChildren(icon(isShown ? 'eye-off' : 'eye'));
    });
    return button;
  }

  get value() { return clean(this.field.kind, this.input.value); }

  setError(text) {
    this.error.hidden = text === '';
    this.error.querySelector('span').textContent = text;
    if (text === '') this.input.removeAttribute('aria-invalid');
    else this.input.setAttribute('aria-invalid', 'true');
    const describedBy = text === '' ? this.describedBy : [this.error.id, ...this.describedBy];
    if (describedBy.length > 0) this.input.setAttribute('aria-describedby', describedBy.join(' '));
    else this.input.removeAttribute('aria-describedby');
  }
}

/** The form of a view. `values` are those of an earlier form of this view, by reference. */
export class FieldsForm {
  #fields;

  constructor(fields, { domain, values = {}, onSubmit }) {
    this.#fields = fields.map((field, index) => new Field(field, index, fields.length));
    for (const { field, input } of this.#fields) input.value = values[field.reference] ?? '';
    for (const one of this.#fields) {
      if (one.field.isRejected) one.setError(t('field_rejected', { domain }));
    }
    this.submitButton = h('button', { type: 'submit', class: 'primary' }, h('span', {}, t('continue')));
    this.element = h('form', { novalidate: true, method: 'post', onsubmit: event => {
      event.preventDefault();
      if (this.#check()) onSubmit(this.#values());
    } }, this.#fields.map(one => one.element), this.submitButton);
  }

  /** Shows which required fields are empty, and returns whether there is none. One value is always required. */
  #check() {
    const isEmpty = this.#fields.every(one => one.value === '');
    const empty = this.#fields.filter((one, index) => one.value === '' && (one.field.isRequired || (isEmpty && index === 0)));
    for (const one of empty) one.setError(t('field_required'));
    empty[0]?.input.focus();
    return empty.length === 0;
  }

  #values() {
    const entered = this.#fields.filter(one => one.field.isRequired || one.value !== '');
    return Object.fromEntries(entered.map(one => [one.field.name, one.value]));
  }

  /** Returns the values by reference, for a form that replaces this one: all, or those that are no secret. */
  retained({ isAll }) {
    const fields = this.#fields.filter(one => isAll || !SECRET_KINDS.includes(one.field.kind));
    return Object.fromEntries(fields.map(one => [one.field.reference, one.input.value]));
  }

  /** Shows the errors of a response: next to the fields that it names. Returns whether it names one. */
  showErrors(details) {
    const named = this.#fields.filter(one => details.some(({ code }) => code === one.field.name || String(code).endsWith(`.${one.field.name}`)));
    for (const one of named) one.setError(t('field_invalid'));
    named[0]?.input.focus();
    return named.length > 0;
  }

  setBusy(isBusy) {
    for (const { input } of this.#fields) input.readOnly = isBusy;
    this.submitButton.setAttribute('aria-disabled', String(isBusy));
    this.submitButton.replaceChildren(...(isBusy ? [h('span', { class: 'spinner' }), h('span', {}, t('sending'))] : [h('span', {}, t('continue'))]));
  }

  /** Moves the focus to the first field that is rejected and empty, else rejected, else empty. */
  focus() {
    const isEmpty = one => one.input.value === '';
    const rejected = this.#fields.filter(one => one.field.isRejected);
    const target = rejected.find(isEmpty) ?? rejected[0] ?? this.#fields.find(isEmpty) ?? this.#fields[0];
    target.input.focus();
  }
}
