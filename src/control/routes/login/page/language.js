// The language of the page: that of the browser, or the selected one.

import { session } from './session.js';

/** The languages that have messages, by their own names. */
export const LANGUAGES = {
  ar: 'العربية',
  de: 'Deutsch',
  en: 'English',
  es: 'Español',
  fr: 'Français',
  it: 'Italiano',
  ja: '日本語',
  nl: 'Nederlands',
  pl: 'Polski',
  pt: 'Português',
};
const DEFAULT = 'en';
const RIGHT_TO_LEFT = ['ar'];
/** Isolate a value from the direction of the text around it. */
const [ISOLATE, POP_ISOLATE] = ['\u2068', '\u2069'];

let current = DEFAULT;
let messages = {};

/** Returns the language to start with. */
export function preferredLanguage() {
  const preferred = [session.language, ...(navigator.languages ?? [])];
  const codes = preferred.map(tag => String(tag).toLowerCase().split('-')[0]);
  return codes.find(code => Object.hasOwn(LANGUAGES, code)) ?? DEFAULT;
}

export function currentLanguage() {
  return current;
}

/** Loads the messages of a language, and sets the language and the direction of the page. */
export async function setLanguage(language) {
  const response = await fetch(new URL(`assets/${language}.json`, location.href), { cache: 'no-cache', credentials: 'omit' });
  if (!response.ok) throw new Error(`status ${response.status}`);
  messages = await response.json();
  current = language;
  const root = document.documentElement;
  root.lang = language;
  root.dir = RIGHT_TO_LEFT.includes(language) ? 'rtl' : 'ltr';
}

/** Returns a message in the language of the page, with its placeholders replaced. */
export function t(key, values = {}) {
  return messages[key].replace(/\{(\w+)\}/g, (_, name) => {
    const value = String(values[name]);
    return document.documentElement.dir === 'rtl' ? `${ISOLATE}${value}${POP_ISOLATE}` : value;
  });
}

/** Returns a duration as text, in minutes, or in seconds if it is shorter than two minutes. */
export function durationText(seconds) {
  const [unit, count] = seconds >= 120 ? ['minute', Math.round(seconds / 60)] : ['second', seconds];
  return new Intl.NumberFormat(current, { style: 'unit', unit, unitDisplay: 'long' }).format(count);
}
