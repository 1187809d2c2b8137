// The hosted login page: exchanges the code, follows the login flow, and sends what the person enters.

import { RequestError, cancel, exchange, getConnection, openEvents, submit } from './api.js';
import { backOff, wake } from './connectivity.js';
import { Countdown } from './countdown.js';
import { h } from './element.js';
import { LANGUAGES, currentLanguage, preferredLanguage, setLanguage, t } from './language.js';
import { session } from './session.js';
import { answer, isFinal, viewOf } from './state.js';
import { follow } from './stream.js';
import { loadTheme } from './theme.js';
import { render } from './views.js';

const byId = id => document.getElementById(id);
const ENDED = ['success', 'failed', 'expired', 'canceled', 'spent', 'incomplete', 'ended', 'gone', 'idle'];

const page = {
  theme: {},
  /** The record of the connection. */
  connection: {},
  view: null,
  /** The elements of the view. */
  shown: {},
  /** Values of the last form that are no secrets, to be corrected after a rejection. */
  retained: {},
  /** Whether an answer is being sent, or has been accepted and the next state is not known yet. */
  isBusy: false,
  /** Whether an answer has been accepted in this view, so that any state that follows is a new one. */
  isAnswered: false,
  isStreamLost: false,
  /** The view to show when the server rejects the token. */
  rejection: 'ended',
};

/** Informs screen readers, after what they are reading. */
function announce(text) {
  byId('announcements').textContent = text;
}

const countdown = new Countdown(byId('time'), announce);

// ---- views

function context() {
  const { domain = '', save_credentials: isSaved, record_session: isRecorded } = page.connection;
  const onValues = values => sendAnswer(answer(page.view.state, values), {});
  return { domain, isSaved, isRecorded, name: page.theme.name, onValues, onAnswer: sendAnswer };
}

/** Draws the view, with values for its fields by their references. */
function draw(values) {
  const { view } = page;
  page.shown = render(view, { ...context(), values });
  byId('view').replaceChildren(...page.shown.element.flat(Infinity).filter(Boolean));
  byId('view').dataset.kind = view.kind;
  byId('main').classList.toggle('wide', page.shown.isWide === true);
  byId('cancel').hidden = ENDED.includes(view.kind) || view.kind === 'checking';
  byId('card-footer').hidden = byId('cancel').hidden;
  const { domain } = page.connection;
  document.title = [page.view.kind !== 'checking' && byId('view').querySelector('h1').textContent, domain ?? page.theme.name].filter(Boolean).join(' – ') || t('title');
}

/** Shows a view, and moves the focus to it unless the person is elsewhere on the page. */
function show(view) {
  const isUnchanged = page.view?.key === view.key && !page.isAnswered;
  const isFirst = page.view === null;
  if (isUnchanged) {
    // The same view: an answer that is being sent still belongs to it.
    page.view.state = view.state;
    showDeadline();
    page.shown.update?.(view.state);
    return;
  }
  page.view = view;
  showDeadline();
  if (page.shown.form) page.retained = page.shown.form.retained({ isAll: false });
  [page.isBusy, page.isAnswered] = [false, false];
  draw(page.retained);
  if (ENDED.includes(view.kind)) byId('confirmation').close();
  const heading = byId('view').querySelector('h1');
  if (isFocusElsewhere()) announce(heading.textContent);
  else if (page.shown.form) page.shown.form.focus();
  else if (!isFirst) heading.focus();
}

/** Returns whether the focus is at a control outside of the view, or in the dialog. */
function isFocusElsewhere() {
  const { activeElement: focused } = document;
  if (!focused || focused === document.body || byId('view').contains(focused)) return false;
  return focused.getClientRects().length > 0;
}

/** Shows a view that is no state of the flow. */
function showKind(kind) {
  show({ kind, key: kind, state: {} });
}

function showDeadline() {
  const { kind, state } = page.view;
  const deadline = Date.parse(state.deadline ?? state.flow_expires_at ?? '');
  const isTimed = ['form', 'external'].includes(kind) && !Number.isNaN(deadline);
  countdown.deadline = isTimed ? deadline : null;
}

/** Shows whether the connection to the server is lost. */
function showConnectivity() {
  const isLost = page.isStreamLost || !navigator.onLine;
  const notice = byId('offline');
  if (notice.hidden === !isLost) return;
  notice.hidden = !isLost;
  announce(t(isLost ? 'offline' : 'online'));
}

function setStreamLost(isLost) {
  page.isStreamLost = isLost;
  showConnectivity();
}

// ---- requests of the person

function setBusy(isBusy) {
  page.isBusy = isBusy;
  page.shown.form?.setBusy(isBusy);
  for (const button of byId('view').querySelectorAll('.choice')) button.setAttribute('aria-disabled', String(isBusy));
}

/** Shows why a request did not succeed, and leaves what the person has entered. An end needs no such reason. */
function showProblem(text) {
  const problem = byId('problem');
  if (problem) problem.textContent = text;
}

/** Submits fields or a choice. */
async function sendAnswer(body, { button }) {
  if (page.isBusy) return;
  const { view } = page;
  showProblem('');
  setBusy(true);
  button?.classList.add('chosen');
  try {
    await submit(body);
    if (page.view === view) page.isAnswered = true;
  } catch (error) {
    if (page.view !== view) return;
    setBusy(false);
    button?.classList.remove('chosen');
    await explain(error);
  }
}

/** Shows why an answer was not accepted. */
async function explain(error) {
  if (!(error instanceof RequestError)) throw error;
  if (error.status === 401 || error.status === 404) {
    endWith(error);
  } else if (error.status === 409) {
    // The site requests something else meanwhile, or nothing.
    await refresh();
    if (page.shown.isRequest) showProblem(t('problem_stale'));
  } else if (error.status === 429) {
    showProblem(t('problem_busy'));
  } else if (error.isTemporary) {
    showProblem(t('problem_not_sent'));
  } else if (!page.shown.form?.showErrors(error.details)) {
    showProblem(t('problem_invalid'));
  }
}

async function cancelFlow() {
  byId('confirm-cancel').setAttribute('aria-disabled', 'true');
  try {
    await cancel();
    await refresh();
  } catch (error) {
    if (error.status === 409) await refresh();
    else if (error.status === 401 || error.status === 404) endWith(error);
    else showProblem(t('problem_not_sent'));
  } finally {
    byId('confirm-cancel').removeAttribute('aria-disabled');
    byId('confirmation').close();
  }
}

// ---- the flow

/** Repeats a request until it succeeds or is rejected. */
async function persist(request) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      const result = await request();
      setStreamLost(false);
      showProblem('');
      return result;
    } catch (error) {
      if (!(error instanceof RequestError) || !error.isTemporary) throw error;
      if (error.status === 429) showProblem(t('problem_pause'));
      else setStreamLost(true);
      await backOff(attempt, error.pause);
    }
  }
}

/** Reads the connection, and shows the state of its flow. */
async function refresh() {
  page.connection = await persist(getConnection);
  show(viewOf(page.connection));
}

/** Shows that the token, or the connection, is not valid any more. */
function endWith(error) {
  if (error.status === 404) showKind('gone');
  else showKind(page.rejection);
}

function onEvent(event) {
  if (event.event !== 'managed_auth_state') return false;
  show(viewOf(event));
  return isFinal(event);
}

/** Exchanges the code of the link, if there is one. Returns whether there is a token then. */
async function enter() {
  const { code } = session;
  if (code) {
    try {
      session.token = await persist(() => exchange(code));
      session.forgetCode();
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      session.forgetCode();
      if (error.status === 404) throw error;
      // A link that is opened again in the tab that has used it: its token is still valid.
      if (!session.token) {
        showKind('spent');
        return false;
      }
      page.rejection = 'spent';
    }
  }
  if (!session.token) showKind('incomplete');
  return session.token !== null;
}

async function run() {
  showKind('checking');
  try {
    if (!await enter()) return;
    await refresh();
    if (page.view.kind === 'idle' || isFinal(page.connection)) return;
    await follow({
      open: openEvents, onEvent,
      onConnected: () => setStreamLost(false),
      onLost: () => setStreamLost(true),
    });
    setStreamLost(false);
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    setStreamLost(false);
    endWith(error);
  }
}

// ---- the frame of the page

/** Writes the texts outside of the view. */
function translate() {
  for (const element of document.querySelectorAll('[data-text]')) element.textContent = t(element.dataset.text);
  byId('language').setAttribute('aria-label', t('language'));
}

async function selectLanguage(language) {
  try {
    await setLanguage(language);
  } catch {
    byId('language').value = currentLanguage();
    announce(t('problem_not_sent'));
    return;
  }
  session.language = language;
  translate();
  draw(page.shown.form?.retained({ isAll: true }) ?? page.retained);
  if (page.isBusy) setBusy(true);
  showDeadline();
}

function prepareControls() {
  const language = byId('language');
  language.replaceChildren(...Object.entries(LANGUAGES).map(([code, name]) => h('option', { value: code, lang: code }, name)));
  language.value = currentLanguage();
  language.addEventListener('change', () => selectLanguage(language.value));
  byId('try-now').addEventListener('click', () => wake({ isReconnected: true }));
  byId('cancel').addEventListener('click', () => byId('confirmation').showModal());
  byId('keep').addEventListener('click', () => byId('confirmation').close());
  byId('confirm-cancel').addEventListener('click', event => {
    if (event.currentTarget.getAttribute('aria-disabled') !== 'true') cancelFlow();
  });
  addEventListener('offline', showConnectivity);
  addEventListener('online', showConnectivity);
}

/** Shows the name and the logo of the operator. */
function showBrand({ name, has_logo: hasLogo }) {
  if (hasLogo) byId('brand').append(h('img', { src: 'theme/logo', alt: name ? '' : t('title'), height: '36' }));
  if (name) byId('brand').append(h('span', { dir: 'auto' }, name));
  byId('brand').hidden = !hasLogo && !name;
}

/** Loads the parts that every view needs. Their failure is repeated: without them nothing can be shown. */
async function load() {
  for (let attempt = 0; ; attempt += 1) {
    try {
      [page.theme] = await Promise.all([loadTheme(), setLanguage(preferredLanguage())]);
      return;
    } catch {
      byId('loading').hidden = false;
      await backOff(attempt);
    }
  }
}

await load();
translate();
showBrand(page.theme);
prepareControls();
document.body.dataset.ready = '';
await run();
