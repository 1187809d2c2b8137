// The browsers of a project, and one browser with its screen and replays.

import { ApiError, call, list as fetchPage, path, send } from './api.js';
import { confirmAction, formDialog, secretDialog } from './dialogs.js';
import { announce, badge, button, bytes, duration, facts, h, heading, pageLink, time } from './dom.js';
import { detail, filters, href, list, table } from './list.js';

const THUMBNAIL_WIDTH = 480;
const MAX_THUMBNAILS = 100;
const MAX_SCREENSHOTS_AT_ONCE = 3;

// A screenshot counts as use of its browser. It is therefore taken once, when the browser is first
// seen, and again only when the user requests it, so that an open console keeps no browser alive.
const thumbnails = new Map();
const queue = [];
/** The thumbnails that are being taken, by the id of the browser. */
const pending = new Map();
let active = 0;

export function browsers(view) {
  return view.id ? browser(view) : browserList(view);
}

function browserList(view) {
  const status = view.query.status ?? 'active';
  const create = () => createBrowser(view, reload);
  const { element, reload } = list(view, {
    target: 'browsers',
    query: view.query,
    project: true,
    live: true,
    render: items => h('ul', { class: 'cards' }, items.map(item => card(item, reload))),
    empty: status === 'active' && !view.query.query
      ? ['No browsers are running', 'A browser appears here while it runs.', button('New browser', () => create(), { kind: 'primary' })]
      : ['No browsers found', 'No browser matches the filters.'],
  });
  return [
    heading('Browsers', null, button('New browser', create, { kind: 'primary' })),
    filters(view, [
      { name: 'query', label: 'Id or name' },
      { name: 'status', label: 'Status', options: [['', 'Running'], ['deleted', 'Ended'], ['all', 'All']] },
    ]),
    element,
  ];
}

function title(item) {
  return item.name ?? item.session_id;
}

function isActive(item) {
  return !item.deleted_at;
}

function card(item, reload) {
  const name = title(item);
  return h('li', { class: 'card' },
    screen(item),
    h('div', { class: 'card-body' },
      h('div', { class: 'row' },
        h('h2', { class: item.name ? '' : 'mono' }, h('a', { href: href('browsers', item.session_id), 'data-key': `open-${item.session_id}` }, name)),
        badge(isActive(item) ? 'running' : 'ended')),
      item.name && h('p', { class: 'small muted mono' }, item.session_id),
      h('p', { class: 'small muted' }, isActive(item) ? ['Started ', time(item.created_at)] : ['Ended ', time(item.deleted_at)],
        item.pool && ` · Pool ${item.pool.name ?? item.pool.id}`, item.profile && ` · Profile ${item.profile.name ?? item.profile.id}`),
      tags(item),
      h('div', { class: 'actions' },
        isActive(item) && item.browser_live_view_url && pageLink('Live view', item.browser_live_view_url, `of ${name}`),
        isActive(item) && button('Refresh screen', () => refresh(item), { key: `screen-${item.session_id}`, hint: `of ${name}` }),
        isActive(item) && button('Delete', () => remove(item, reload), { kind: 'danger', key: `delete-${item.session_id}`, hint: name }))));
}

function tags(item) {
  const entries = Object.entries(item.tags ?? {});
  return entries.length > 0 && h('p', { class: 'tags' }, entries.map(([key, value]) => h('span', { class: 'tag' }, value ? `${key}=${value}` : key)));
}

/** Returns the thumbnail of a browser's screen, which is taken when it is scrolled into view. */
function screen(item) {
  const { width, height } = item.viewport;
  const frame = h('div', { class: 'screen', 'data-screen': item.session_id });
  frame.style.aspectRatio = `${width} / ${height}`;
  const thumbnail = thumbnails.get(item.session_id);
  if (thumbnail) show(frame, item, thumbnail);
  else if (!isActive(item)) frame.append(h('span', { class: 'muted' }, 'Ended'));
  else {
    frame.append(h('span', { class: 'muted' }, 'Loading screen…'));
    frames.set(frame, item);
    visibility.observe(frame);
  }
  return frame;
}

function show(frame, item, { url }) {
  frame.replaceChildren(url ? h('img', { src: url, alt: `Screen of ${title(item)}` }) : h('span', { class: 'muted' }, 'No screen'));
}

function shownFrames(id) {
  return [...document.querySelectorAll(`[data-screen="${CSS.escape(id)}"]`)];
}

const frames = new WeakMap();
const visibility = new IntersectionObserver(entries => {
  for (const { target } of entries.filter(entry => entry.isIntersecting)) {
    visibility.unobserve(target);
    takeThumbnail(frames.get(target));
  }
});

/** Takes a thumbnail in its turn, unless its frame is gone by then. Returns whether it is shown. */
function takeThumbnail(item) {
  const id = item.session_id;
  if (!pending.has(id)) {
    pending.set(id, new Promise(resolve => { queue.push({ item, resolve }); }).finally(() => pending.delete(id)));
    takeNext();
  }
  return pending.get(id);
}

async function takeNext() {
  if (active >= MAX_SCREENSHOTS_AT_ONCE || document.hidden || queue.length === 0) return;
  active += 1;
  const { item, resolve } = queue.shift();
  const id = item.session_id;
  let isTaken = false;
  if (shownFrames(id).length > 0) {
    try {
      const response = await send('POST', `browsers/${path(id)}/computer/screenshot`, { project: true });
      remember(id, await scale(await response.blob()));
      isTaken = true;
    } catch {
      if (!thumbnails.has(id)) remember(id, null);
    }
    shownFrames(id).forEach(frame => show(frame, item, thumbnails.get(id)));
  }
  active -= 1;
  resolve(isTaken);
  takeNext();
}

document.addEventListener('visibilitychange', () => {
  for (let i = 0; i < MAX_SCREENSHOTS_AT_ONCE; i += 1) takeNext();
});

function remember(id, url) {
  forget(id);
  thumbnails.set(id, { url });
  if (thumbnails.size > MAX_THUMBNAILS) forget(thumbnails.keys().next().value);
}

function forget(id) {
  const url = thumbnails.get(id)?.url;
  if (url) URL.revokeObjectURL(url);
  thumbnails.delete(id);
}

async function scale(blob) {
  const bitmap = await createImageBitmap(blob, { resizeWidth: THUMBNAIL_WIDTH, resizeQuality: 'medium' });
  const canvas = h('canvas', { width: bitmap.width, height: bitmap.height });
  canvas.getContext('2d').drawImage(bitmap, 0, 0);
  bitmap.close();
  const scaled = await new Promise(resolve => canvas.toBlob(resolve, 'image/webp', 0.8));
  return URL.createObjectURL(scaled);
}

async function refresh(item) {
  const isTaken = await takeThumbnail(item);
  announce(isTaken ? 'The screen is up to date.' : 'The browser has no screen now.');
}

async function createBrowser(view, reload) {
  const created = await formDialog({
    title: 'New browser',
    label: 'Create',
    fields: [
      { name: 'name', label: 'Name', maxlength: 255, hint: 'Optional. Letters, digits, dots, hyphens and underscores.' },
      { name: 'start_url', label: 'Start URL', type: 'text', placeholder: 'https://example.com' },
      { name: 'timeout_seconds', label: 'Idle timeout in seconds', type: 'number', min: 10, max: 259200, value: 600, hint: 'The browser is deleted when it has not been used for this time.' },
      { name: 'headless', label: 'Headless', type: 'checkbox', hint: 'Without a display, live view and recordings.' },
    ],
    action: body => call('POST', 'browsers', { body, project: true, signal: view.signal }),
    done: 'The browser is running.',
  });
  if (created) reload();
}

async function remove(item, reload) {
  const isDone = await confirmAction({
    title: `Delete browser ${title(item)}?`,
    text: 'The browser ends at once, with its tabs, files and connections. Its replays are kept.',
    label: 'Delete browser',
    action: () => call('DELETE', `browsers/${path(item.session_id)}`, { project: true }),
    done: `Browser ${title(item)} is deleted.`,
  });
  if (!isDone) return;
  forget(item.session_id);
  reload();
}

/** Reads the browser from the list, because reading it alone counts as use. */
async function findBrowser(view) {
  const query = { query: view.id, status: 'all', limit: 100 };
  const { items } = await fetchPage('browsers', { query, project: true, signal: view.signal });
  const item = items.find(({ session_id: id }) => id === view.id);
  if (!item) throw new ApiError(404, { code: 'not_found', message: 'no browser with that id in this project' });
  return item;
}

function browser(view) {
  return detail(view, 'Browsers', () => findBrowser(view), item => details(view, item));
}

function details(view, item) {
  const { width, height, refresh_rate: rate } = item.viewport;
  const secret = () => secretDialog({
    title: 'DevTools URL',
    text: 'Playwright, Puppeteer and other DevTools clients connect with this URL. It contains a token that controls this browser.',
    label: 'DevTools URL',
    value: item.cdp_ws_url,
  });
  const actions = isActive(item) ? [
    item.browser_live_view_url && pageLink('Live view', item.browser_live_view_url),
    item.browser_live_view_read_only_url && pageLink('Read-only view', item.browser_live_view_read_only_url),
    button('DevTools URL', secret, { key: 'secret' }),
    button('Delete', () => remove(item, () => { location.hash = href('browsers'); }), { kind: 'danger', key: 'delete' }),
  ] : [];
  return [
    heading(title(item), null, ...actions),
    h('div', { class: 'split' },
      h('div', { class: 'panel' },
        screen(item),
        isActive(item) && h('div', { class: 'actions' }, button('Refresh screen', () => refresh(item), { key: 'screen' }))),
      h('div', { class: 'panel' }, facts([
        ['Status', badge(isActive(item) ? 'running' : 'ended')],
        ['Id', h('code', {}, item.session_id)],
        ['Started', time(item.created_at)],
        ['Ended', item.deleted_at && time(item.deleted_at)],
        ['Idle timeout', duration(item.timeout_seconds)],
        ['Screen', `${item.headless ? 'Headless, ' : ''}${width} × ${height}, ${rate} Hz`],
        ['Start URL', item.start_url],
        ['Pool', item.pool && h('a', { href: href('pools', item.pool.id) }, item.pool.name ?? item.pool.id)],
        ['Profile', item.profile && h('a', { href: href('profiles', item.profile.id ?? item.profile.name) }, item.profile.name ?? item.profile.id)],
        ['Tags', tags(item)],
        ['Project', document.getElementById('project-select').selectedOptions[0]?.text],
      ]))),
    h('h2', {}, 'Replays'),
    replays(view, item),
  ];
}

/** Returns the replays. They are read once, because that counts as use of the browser. */
function replays(view, item) {
  const columns = [
    { title: 'Started', cell: replay => time(replay.started_at) },
    { title: 'Status', cell: replay => badge(replay.status ?? (replay.finished_at ? 'finished' : 'recording')) },
    { title: 'Duration', cell: replay => (replay.duration_ms === undefined ? '–' : duration(replay.duration_ms / 1000)), kind: 'number' },
    { title: 'Size', cell: replay => bytes(replay.size_bytes), kind: 'number' },
    { title: 'Id', cell: replay => h('code', {}, replay.replay_id) },
    { title: 'Actions', kind: 'controls', cell: replay => replay.replay_view_url && pageLink('Play', replay.replay_view_url, `replay ${replay.replay_id}`) },
  ];
  return list(view, {
    target: `browsers/${path(item.session_id)}/replays`,
    project: true,
    render: items => table('Replays', columns, items),
    empty: ['No replays', 'Recordings of this browser appear here.'],
  }).element;
}
