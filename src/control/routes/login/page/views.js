// The views: one for each kind of state. Texts of sites become text nodes, never HTML.

import { h, icon } from './element.js';
import { FieldsForm } from './form.js';
import { t } from './language.js';
import { parseUrl } from './state.js';

const CODES = ['code', 'totp_code'];
const MFA_LABELS = {
  sms: 'mfa_sms', call: 'mfa_call', email: 'mfa_email', totp: 'mfa_totp',
  push: 'mfa_push', password: 'mfa_password', switch: 'mfa_switch',
};
const MFA_ICONS = { sms: 'message', call: 'phone', email: 'mail', totp: 'clock', push: 'bell', password: 'key', switch: 'arrow' };
const TURNS = { person: 'turn_person', system: 'turn_system', site: 'turn_site' };
/** Reasons of a failure that the person can understand. */
const FAILURES = {
  login_page_not_found: 'failed_site', site_unavailable: 'failed_site', site_timeout: 'failed_site',
  browser_not_started: 'failed_system', browser_lost: 'failed_system', browser_timeout: 'failed_system',
  controller_lost: 'failed_system', profile_not_saved: 'failed_system',
};
const GROUP_TITLES = { mfa: ['choose_mfa_title', 'choose_mfa_text'], accounts: ['choose_account_title', 'choose_account_text'] };

/** Returns the title of a view, which gets the focus when the view changes. */
function title(text) {
  return h('h1', { tabindex: '-1' }, text);
}

/** Returns the site that the person signs in to, and who acts, which may take a while. */
function site({ domain }, who, { isBusy = who !== 'person' } = {}) {
  return h('div', { class: isBusy ? 'site busy' : 'site' },
    h('span', { class: 'tile', 'aria-hidden': 'true' }, domain ? domain.replace(/^www\./, '').charAt(0).toUpperCase() : icon('lock')),
    h('div', {}, domain && h('p', { class: 'domain', dir: 'ltr' }, domain), h('p', { class: `turn ${who}` }, t(TURNS[who], { domain }))));
}

/** Returns a message of the site, as text in the direction of its language. */
function siteMessage({ siteError }, { domain }) {
  return siteError && h('div', { class: 'alert', role: 'alert' }, icon('alert'),
    h('div', {}, h('p', { class: 'alert-title' }, t('site_message', { domain })), h('p', { dir: 'auto' }, siteError)));
}

/** Returns the place of errors of requests. */
function problem() {
  return h('p', { id: 'problem', class: 'problem', role: 'alert' });
}

/** Returns where the person's input is used and kept. */
function privacy({ isSaved, isRecorded }) {
  return h('p', { class: 'privacy' }, icon('lock'),
    h('span', {}, t('privacy'), isSaved && ` ${t('privacy_saved')}`, isRecorded && ` ${t('privacy_recorded')}`));
}

/** Returns a view that waits: for this server, or for the site. */
function waiting(heading, text, who, context) {
  return {
    element: [site(context, who), title(heading), h('p', { class: 'lead' }, text), problem()],
  };
}

function choiceLabel(choice) {
  if (choice.label) return h('span', { dir: 'auto' }, choice.label);
  if (choice.provider) return h('span', {}, t('continue_with', { provider: choice.provider }));
  return h('span', {}, t(MFA_LABELS[choice.mfaType] ?? 'choice'));
}

function choiceIcon(choice) {
  if (choice.group === 'sso') return h('span', { class: 'letter', 'aria-hidden': 'true' }, (choice.provider ?? choice.label ?? '?').charAt(0).toUpperCase());
  if (choice.group === 'accounts') return icon('person');
  return icon(MFA_ICONS[choice.mfaType] ?? 'key');
}

function choiceButton(choice, { onAnswer }) {
  const details = [...new Set(choice.details.filter(Boolean))].filter(text => text !== choice.label);
  const button = h('button', { type: 'button', class: `choice ${choice.group}`, onclick: () => {
    onAnswer(choice.body, { button });
  } },
  choiceIcon(choice),
  h('span', { class: 'choice-text' }, choiceLabel(choice), details.map(text => [' ', h('span', { class: 'choice-details', dir: 'auto' }, text)])),
  icon('chevron'));
  return h('li', {}, button);
}

/** Returns the choices by group, after a divider if there is something before them. */
function choiceLists(choices, context, { isSecondary }) {
  const groups = new Map();
  for (const choice of choices) groups.set(choice.group, [...(groups.get(choice.group) ?? []), choice]);
  let isFirst = !isSecondary;
  return [...groups].map(([group, members]) => {
    const divider = !isFirst && h('p', { class: 'divider' }, h('span', {}, t(group === 'sso' ? 'or' : 'other_ways')));
    isFirst = false;
    return [divider, h('ul', { class: 'choices' }, members.map(choice => choiceButton(choice, context)))];
  });
}

/** Returns the title and the explanation of a page with these fields or choices. */
function formTexts({ fields, choices }, { domain }) {
  if (fields.length === 0) {
    const [heading, text] = GROUP_TITLES[choices[0].group] ?? ['choose_method_title', 'choose_method_text'];
    return [t(heading), t(text, { domain })];
  }
  if (fields.every(field => CODES.includes(field.kind))) return [t('code_title'), t('code_text', { domain })];
  if (fields.some(field => ['identifier', 'password'].includes(field.kind))) {
    return [t('title'), t('sign_in_text', { domain })];
  }
  return [t('question_title'), t('question_text', { domain })];
}

function formView(view, context) {
  const [heading, text] = formTexts(view, context);
  const { fields, choices } = view;
  const form = fields.length > 0 ? new FieldsForm(fields, { ...context, onSubmit: values => context.onValues(values) }) : null;
  return {
    form,
    isRequest: true,
    element: [
      site(context, 'person'), title(heading), h('p', { class: 'lead' }, text), siteMessage(view, context),
      problem(),
      form?.element, choiceLists(choices, context, { isSecondary: form !== null }), form && privacy(context),
    ],
  };
}

function externalView(view, context) {
  const { domain } = context;
  const message = h('p', { dir: 'auto' });
  const note = h('div', { class: 'next' }, icon('message'), message);
  const frame = view.liveView && h('div', { class: 'frame' },
    h('iframe', { src: view.liveView, title: t('live_view_title', { domain }), allow: 'clipboard-read; clipboard-write; fullscreen', referrerpolicy: 'no-referrer' }));
  const open = view.liveView && h('a', { class: 'link', href: view.liveView, target: '_blank', rel: 'noopener noreferrer' }, icon('external'), t('live_view_open'));
  // The message is not in the language of the page, but more precise than its text.
  const update = ({ external_action_message: text }) => {
    message.textContent = text ?? '';
    note.hidden = !text;
  };
  update(view.state);
  return {
    update,
    isRequest: true,
    isWide: view.liveView !== null,
    element: [
      site(context, 'person', { isBusy: view.liveView === null }), title(t('external_title')),
      h('p', { class: 'lead' }, t(view.liveView ? 'external_text' : 'external_text_device', { domain })), note, siteMessage(view, context),
      problem(), frame, open,
      h('p', { class: 'hint' }, t('external_continues')),
      choiceLists(view.choices, context, { isSecondary: true }), view.liveView && privacy(context),
    ],
  };
}

/** Returns a view that ends the sign-in on this page. */
function endView(kind, symbol, heading, text, ...more) {
  return {
    element: [
      h('div', { class: `badge ${kind}` }, icon(symbol)),
      h('div', { class: 'end' }, title(heading), text && h('p', { class: 'lead' }, text)), more,
    ],
  };
}

function nextStep({ name }) {
  return h('p', { class: 'next' }, icon('arrow'), h('span', {}, name ? t('next_step_named', { name }) : t('next_step')));
}

/** Returns a link to the page of the site, or nothing for another kind of URL. */
function sitePage(page) {
  const url = parseUrl(page);
  if (!['http:', 'https:'].includes(url?.protocol)) return null;
  const text = `${url.host}${url.pathname === '/' ? '' : url.pathname}`;
  return h('p', { class: 'page-link' }, h('span', {}, t('success_page')), ' ',
    h('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer', dir: 'ltr' }, text));
}

function failedView(view, context) {
  const details = [view.code, view.message].filter(Boolean);
  const { domain } = context;
  const reason = FAILURES[view.code] && h('p', {}, t(FAILURES[view.code], { domain }));
  return endView('bad', 'alert', t('failed_title'), t('failed_text', { domain }), reason,
    siteMessage(view, context), nextStep(context),
    details.length > 0 && h('details', {}, h('summary', {}, t('details')), details.map(text => h('p', { dir: 'ltr' }, text))));
}

const VIEWS = {
  checking: (_, context) => waiting(t('checking_title'), t('checking_text'), 'system', context),
  opening: ({ who }, context) => waiting(t('opening_title'), t('opening_text'), who === 'site' ? 'site' : 'system', context),
  entering: (_, context) => waiting(t('verifying_title'), t('entering_text', context), 'system', context),
  verifying: (_, context) => waiting(t('verifying_title'), t('verifying_text', context), 'site', context),
  form: formView,
  external: externalView,
  success: (view, context) => endView('good', 'check', t('success_title'), t('success_text', context),
    h('p', { class: 'next' }, icon('check'), h('span', {}, t('success_close'))), sitePage(view.page)),
  failed: failedView,
  expired: (_, context) => endView('calm', 'clock', t('expired_title'), t('expired_text', context), nextStep(context)),
  canceled: (_, context) => endView('calm', 'close', t('canceled_title'), t('canceled_text', context), nextStep(context)),
  spent: (_, context) => endView('calm', 'link', t('spent_title'), t('spent_text'), nextStep(context)),
  incomplete: (_, context) => endView('calm', 'link', t('incomplete_title'), t('incomplete_text'), nextStep(context)),
  ended: (_, context) => endView('calm', 'clock', t('ended_title'), t('ended_text'), nextStep(context)),
  gone: (_, context) => endView('calm', 'link', t('gone_title'), t('gone_text'), nextStep(context)),
  idle: (_, context) => endView('calm', 'clock', t('idle_title'), t('idle_text', context), nextStep(context)),
};

/** Returns the elements of a view, and what the page needs of it: its form, its width, its update. */
export function render(view, context) {
  return VIEWS[view.kind](view, context);
}
