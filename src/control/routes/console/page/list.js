// Lists: loading, paging, filters, and updates while the page is visible.

import { PAGE_SIZE, list as fetchPage } from './api.js';
import { emptyState, errorPanel, h, heading, loading } from './dom.js';

const POLL_INTERVAL = 5000;

/** Returns the hash of a route. */
export function href(name, id, query = {}) {
  const entries = Object.entries(query).filter(([, value]) => value !== undefined && value !== '' && value !== 0);
  const search = new URLSearchParams(entries).toString();
  return `#/${[name, id].filter(Boolean).map(encodeURIComponent).join('/')}${search && `?${search}`}`;
}

/** Runs `task` at an interval until the signal, except while it runs, the page is hidden or a dialog is open. */
function poll(task, signal) {
  let isRunning = false;
  const run = async () => {
    if (isRunning || document.hidden || document.querySelector('dialog[open]')) return;
    isRunning = true;
    await task();
    isRunning = false;
  };
  const timer = setInterval(run, POLL_INTERVAL);
  signal.addEventListener('abort', () => clearInterval(timer));
  document.addEventListener('visibilitychange', run, { signal });
}

/** Replaces the children of an element. The focus stays on the control with the same key, or goes to the view. */
function replace(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  element.replaceChildren(...children);
  if (!focused) return;
  const key = focused.dataset.key;
  const successor = key && element.querySelector(`[data-key="${CSS.escape(key)}"]`);
  (successor || document.getElementById('main')).focus({ preventScroll: true });
}

/** Returns a table. Each column has a title and a function that returns the content of its cells. */
export function table(label, columns, items) {
  const row = item => h('tr', { role: 'row' }, columns.map(({ title, cell, kind = '' }) =>
    h('td', { role: 'cell', class: kind, 'data-label': title }, h('div', {}, cell(item)))));
  return h('div', { class: 'table' }, h('table', { role: 'table', 'aria-label': label },
    h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, columns.map(({ title, kind = '' }) =>
      h('th', { role: 'columnheader', scope: 'col', class: kind }, kind === 'controls' ? h('span', { class: 'visually-hidden' }, title) : title)))),
    h('tbody', { role: 'rowgroup' }, items.map(row))));
}

/**
 * Returns an element with the result of `fetch`, and a function that loads it again. `render` returns
 * the children of a result. With `live`, it is updated while the page is visible.
 */
function loader(view, { fetch, render, renderError, live, kind }) {
  const body = h('div', { class: kind, 'aria-busy': 'true' }, loading());
  const stale = h('p', { class: 'small muted' });
  let [shown, latest] = ['', 0];
  const load = async ({ isQuiet = false } = {}) => {
    const turn = latest += 1;
    let children;
    let content = '';
    let warning = '';
    try {
      const result = await fetch();
      // Tokens in URLs differ in each response.
      content = JSON.stringify(result).replace(/jwt=[^"&]*/g, '');
      if (content !== shown) children = render(result, load);
    } catch (error) {
      if (isQuiet) [content, warning] = [shown, `Not up to date: ${error.message}.`];
      else children = renderError(error, () => load());
    }
    if (view.signal.aborted || turn !== latest) return;
    shown = content;
    stale.textContent = warning;
    if (children) replace(body, ...children.flat());
    body.removeAttribute('aria-busy');
  };
  load();
  if (live) poll(() => load({ isQuiet: true }), view.signal);
  return { element: h('div', {}, body, stale), reload: () => load() };
}

/** Returns the page of one resource, with a link to the list that it is in. */
export function detail(view, title, fetch, render) {
  const renderError = (error, retry) => [heading(view.id), errorPanel(error, retry)];
  const { element } = loader(view, { fetch, render, renderError, live: true, kind: 'stack' });
  return [h('p', { class: 'back' }, h('a', { href: href(view.name) }, `← ${title}`)), element];
}

/**
 * Returns the list at `target` and a function that reloads it. `render` converts the items of a
 * page into an element. With `live`, the list is updated while the page is visible.
 */
export function list(view, { target, query = {}, project = false, render, empty, feature, live = false, pager = offsetPager }) {
  const isFirstPage = !view.query.offset;
  return loader(view, {
    live,
    kind: 'list',
    fetch: () => fetchPage(target, { query: { limit: PAGE_SIZE, ...query }, project, signal: view.signal }),
    render: page => [
      page.items.length > 0 ? render(page.items) : emptyState(...(isFirstPage ? empty : ['Nothing on this page', 'The entries before may have changed.'])),
      h('div', { class: 'pager' }, pager(view, page)),
    ],
    renderError: (error, retry) => [error.isUnknownRoute ? emptyState(`No ${feature} here`, `This server does not support ${feature}.`) : errorPanel(error, retry)],
  });
}

/** Returns the links to the pages before and after, for lists with an offset. */
function offsetPager(view, { items, next }) {
  const offset = Number(view.query.offset ?? 0);
  if (offset === 0 && next === null) return [];
  const link = (label, target, isPresent) => (isPresent
    ? h('a', { class: 'button', href: href(view.name, view.id, { ...view.query, offset: target }) }, label)
    : h('span', { class: 'button', 'aria-disabled': 'true' }, label));
  return [h('nav', { 'aria-label': 'Pages' },
    link('Previous', Math.max(0, offset - PAGE_SIZE), offset > 0),
    h('span', { class: 'muted' }, items.length > 0 ? `${offset + 1}–${offset + items.length}` : `After ${offset}`),
    link('Next', next, next !== null))];
}

/** Returns a form with the filters of a list, which are part of the hash. */
export function filters(view, fields) {
  const onsubmit = event => {
    event.preventDefault();
    const query = Object.fromEntries([...form.elements].filter(input => input.name).map(input => [input.name, input.value.trim()]));
    location.hash = href(view.name, view.id, query);
  };
  const field = ({ name, label, options, type = 'search', value = view.query[name] ?? '' }) => {
    const id = `filter-${name}`;
    const input = options
      ? h('select', { id, name }, options.map(([option, text]) => h('option', { value: option, selected: option === value }, text)))
      : h('input', { id, name, type, value, autocomplete: 'off', maxlength: type === 'search' && 255 });
    return h('div', { class: 'field' }, h('label', { for: id }, label), input);
  };
  const form = h('form', { class: 'filters', role: 'search', onsubmit }, fields.map(field), h('button', { type: 'submit' }, 'Search'));
  return form;
}
