// The console: sign-in, navigation, the selected project and the theme.

import { ApiError, call, list, path, session } from './api.js';
import { audit } from './audit.js';
import { browsers } from './browsers.js';
import { announce, errorPanel, h, heading, updateTimes } from './dom.js';
import { hosts } from './hosts.js';
import { keys } from './keys.js';
import { href } from './list.js';
import { pools } from './pools.js';
import { profiles } from './profiles.js';
import { projects } from './projects.js';

const VIEWS = { browsers, pools, profiles, projects, keys, hosts, audit };
const TITLES = { browsers: 'Browsers', pools: 'Pools', profiles: 'Profiles', projects: 'Projects', keys: 'API keys', hosts: 'Hosts', audit: 'Audit log' };
/** Views of the whole organization, for keys that are not bound to a project. */
const ORGANIZATION = ['hosts', 'audit'];
const DEFAULT_VIEW = 'browsers';
const TIMES_INTERVAL = 15_000;
/** Pages of 100 projects that the selection lists; the view of projects selects the others. */
const MAX_PROJECT_PAGES = 5;

const main = document.getElementById('main');
const selection = document.getElementById('project-select');
let current = new AbortController();

function readHash() {
  const [segments, search = ''] = location.hash.replace(/^#\/?/, '').split('?');
  try {
    const [name, id] = segments.split('/').map(decodeURIComponent);
    if (Object.hasOwn(VIEWS, name)) return { name, id, query: Object.fromEntries(new URLSearchParams(search)) };
  } catch {
    // A malformed escape: the default view.
  }
  return { name: DEFAULT_VIEW, id: undefined, query: {} };
}

function showView({ isFirst = false } = {}) {
  current.abort();
  for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
  current = new AbortController();
  const view = { ...readHash(), signal: current.signal, selectProject, refreshProjects: loadProjects };
  document.title = `${TITLES[view.name]} – Berth`;
  for (const link of document.querySelectorAll('nav[aria-label="Console"] a')) {
    if (link.hash === `#/${view.name}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.querySelector('[aria-current="page"]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  if (ORGANIZATION.includes(view.name) && !session.isOrganizationWide) {
    const error = new ApiError(403, { code: 'forbidden', message: 'this page needs a key that is not bound to a project' });
    main.replaceChildren(heading(TITLES[view.name]), errorPanel(error));
  } else {
    main.replaceChildren(...VIEWS[view.name](view).flat());
  }
  if (isFirst) return;
  window.scrollTo(0, 0);
  // Arrow keys change the selection step by step: it keeps the focus.
  if (document.activeElement !== selection) main.focus({ preventScroll: true });
}

/** Selects the project that requests are about, and shows the list of the present view. */
function selectProject({ id, name }) {
  session.project = id;
  if (![...selection.options].some(option => option.value === id)) selection.append(h('option', { value: id }, name));
  selection.value = id;
  announce(`Project ${name} is selected.`);
  const { name: view } = readHash();
  if (location.hash === href(view)) showView();
  else location.hash = href(view);
}

/** Fills the selection with the active projects. */
async function loadProjects() {
  const known = [];
  try {
    let offset = 0;
    for (let page = 0; page < MAX_PROJECT_PAGES && offset !== null; page += 1) {
      const { items, next } = await list('org/projects', { query: { limit: 100, offset } });
      known.push(...items.filter(project => project.status === 'active'));
      offset = next;
    }
    if (!known.some(project => project.id === session.project)) {
      const project = await call('GET', `org/projects/${path(session.project)}`).catch(() => null);
      if (project?.status === 'active') known.push(project);
      else session.project = session.context.project_id;
    }
  } catch (error) {
    announce(`The projects cannot be listed: ${error.message}`);
    if (known.length === 0) known.push({ id: session.project, name: session.project });
  }
  selection.replaceChildren(...known.map(({ id, name }) => h('option', { value: id, selected: id === session.project }, name)));
  selection.disabled = !session.isOrganizationWide;
}

async function start() {
  main.replaceChildren(h('p', { class: 'placeholder', role: 'status' }, 'Loading…'));
  try {
    session.context = await call('GET', 'auth/context');
  } catch (error) {
    if (error.status !== 401) main.replaceChildren(errorPanel(error, start));
    return;
  }
  for (const item of document.querySelectorAll('[data-organization]')) item.hidden = !session.isOrganizationWide;
  await loadProjects();
  showView({ isFirst: true });
  window.addEventListener('hashchange', () => showView());
}

/** Ends the session. The page is loaded again, so that nothing of it stays in memory. */
function signOut(message = '') {
  session.clear();
  if (message) sessionStorage.setItem('notice', message);
  location.reload();
}

/** Checks a key by asking who it belongs to. */
async function signIn(event) {
  event.preventDefault();
  const [input, submit, errors] = ['key', 'sign-in-submit', 'sign-in-error'].map(id => document.getElementById(id));
  const key = input.value.trim();
  submit.disabled = true;
  try {
    if (!/^[\x21-\x7e]+$/.test(key)) throw new ApiError(0, { code: 'bad_key', message: 'a key has only letters, digits and punctuation' });
    await call('GET', 'auth/context', { key });
    input.value = '';
    errors.replaceChildren();
    session.key = key;
    document.documentElement.dataset.signedIn = '';
    await start();
    main.focus({ preventScroll: true });
  } catch (error) {
    errors.replaceChildren(errorPanel(error));
    input.focus();
  } finally {
    submit.disabled = false;
  }
}

function setTheme(theme) {
  if (theme === 'system') {
    localStorage.removeItem('theme');
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem('theme', theme);
    document.documentElement.dataset.theme = theme;
  }
}

session.onUnauthorized = error => signOut(`Signed out: ${error.message}.`);
document.querySelector('#sign-in form').addEventListener('submit', signIn);
document.getElementById('sign-out').addEventListener('click', () => signOut());
document.querySelector('.skip').addEventListener('click', event => {
  event.preventDefault();
  main.focus();
});
selection.addEventListener('change', () => selectProject({ id: selection.value, name: selection.selectedOptions[0].text }));
const theme = document.getElementById('theme');
theme.value = document.documentElement.dataset.theme ?? 'system';
theme.addEventListener('change', () => setTheme(theme.value));
setInterval(updateTimes, TIMES_INTERVAL);

const notice = sessionStorage.getItem('notice');
sessionStorage.removeItem('notice');
if (notice) document.getElementById('sign-in-error').replaceChildren(h('p', { class: 'notice' }, notice));
if (session.key) start();
else document.getElementById('key').focus();
