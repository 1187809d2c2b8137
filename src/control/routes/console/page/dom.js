// Texts and parts of views. Nothing is parsed as HTML: values of the API become text nodes or attributes.

import { h, icon } from './element.js';

export { h, icon };

/** Returns a button. `key` names it among those of a list, which restores the focus by it. */
export function button(label, onclick, { kind = '', key, hint } = {}) {
  return h('button', { type: 'button', class: kind, onclick, 'data-key': key, 'aria-label': hint && `${label} ${hint}` }, label);
}

/** Returns a link that opens a page of this server in a new tab, or nothing for another kind of URL. */
export function pageLink(label, url, hint = '') {
  if (!URL.canParse(url) || !['http:', 'https:'].includes(new URL(url).protocol)) return null;
  return h('a', { class: 'button', href: url, target: '_blank', rel: 'noopener noreferrer', 'aria-label': `${label} ${hint}`.trim() }, label);
}

/** Returns the title of a view with its actions. */
export function heading(title, lead, ...actions) {
  return h('div', { class: 'heading' },
    h('div', {}, h('h1', { tabindex: '-1' }, title), lead && h('p', { class: 'muted' }, lead)),
    h('div', { class: 'actions' }, actions));
}

const KINDS = {
  good: ['active', 'ready', 'finished', 'current'],
  busy: ['leased', 'recording', 'starting', 'recycling', 'running'],
  bad: ['lost', 'gone', 'retiring', 'draining'],
};

export function badge(text) {
  const [kind = ''] = Object.entries(KINDS).find(([, texts]) => texts.includes(text)) ?? [];
  return h('span', { class: `badge ${kind}` }, text);
}

export function loading() {
  return h('p', { class: 'placeholder', role: 'status' }, 'Loading…');
}

export function emptyState(title, text, action) {
  return h('div', { class: 'placeholder' }, h('h2', {}, title), h('p', {}, text), action);
}

/** Returns the description of an error with all that the API says about it. */
export function errorPanel(error, retry) {
  const details = error.details ?? [];
  return h('div', { class: 'error', role: 'alert' },
    h('p', {}, h('strong', {}, capitalize(error.message))),
    details.length > 0 && h('ul', {}, details.map(({ code, message }) => h('li', {}, h('code', {}, code), ` ${message}`))),
    h('p', { class: 'small' }, h('code', {}, error.status ? `${error.status} ${error.code}` : error.code ?? 'error'),
      error.requestId && [' Request id ', h('code', {}, error.requestId)]),
    retry && button('Try again', retry));
}

/** Returns a description list of pairs of a term and its value; those without a value are skipped. */
export function facts(pairs) {
  return h('dl', { class: 'facts' }, pairs
    .filter(([, value]) => value)
    .map(([term, value]) => h('div', {}, h('dt', {}, term), h('dd', {}, value))));
}

export function capitalize(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const UNITS = [['day', 86_400], ['hour', 3_600], ['minute', 60]];
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto' });
const absolute = new Intl.DateTimeFormat('en', { dateStyle: 'medium', timeStyle: 'medium', hourCycle: 'h23' });
const whole = new Intl.NumberFormat('en');

export function number(value) {
  return value === undefined || value === null ? '–' : whole.format(value);
}

/** Returns a count with its noun: `1 cookie`, `2 cookies`. */
export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

function relativeTime(date) {
  const seconds = (date - Date.now()) / 1000;
  for (const [unit, length] of UNITS) {
    if (Math.abs(seconds) >= length) return relative.format(Math.round(seconds / length), unit);
  }
  return 'just now';
}

/** Returns a time relative to now, which `updateTimes` keeps up to date. */
export function time(text) {
  if (!text) return h('span', { class: 'muted' }, '–');
  const date = new Date(text);
  return h('time', { datetime: text, title: absolute.format(date), 'data-relative': '' }, relativeTime(date));
}

export function exactTime(text) {
  return h('time', { datetime: text }, absolute.format(new Date(text)));
}

export function updateTimes() {
  for (const element of document.querySelectorAll('time[data-relative]')) {
    element.textContent = relativeTime(new Date(element.dateTime));
  }
}

export function bytes(count) {
  if (count === undefined || count === null) return '–';
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let index = 0;
  while (count >= 1000 && index < units.length - 1) {
    count /= 1000;
    index += 1;
  }
  return `${index === 0 ? count : count.toFixed(1)} ${units[index]}`;
}

/** Returns a duration in seconds as text, such as `1 h 5 min`. */
export function duration(seconds) {
  const parts = [[Math.floor(seconds / 3600), 'h'], [Math.floor(seconds / 60) % 60, 'min'], [Math.round(seconds % 60), 's']];
  return parts.filter(([count]) => count > 0).slice(0, 2).map(([count, unit]) => `${count} ${unit}`).join(' ') || '0 s';
}

/** Announces the result of an action, visibly and to screen readers. */
export function announce(text) {
  const status = document.getElementById('status');
  const message = h('p', {}, text);
  status.replaceChildren(message);
  setTimeout(() => message.remove(), 6000);
}
