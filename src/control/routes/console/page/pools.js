// The pools of a project, with their browsers and waiters.

import { call, path } from './api.js';
import { confirmAction, formDialog } from './dialogs.js';
import { button, duration, facts, h, heading, number, plural, time } from './dom.js';
import { detail, filters, href, list, table } from './list.js';

export function pools(view) {
  return view.id ? pool(view) : poolList(view);
}

function title(item) {
  return item.name ?? item.id;
}

function poolList(view) {
  const create = () => createPool(view, reload);
  const columns = [
    { title: 'Pool', cell: item => [h('a', { href: href('pools', item.id), 'data-key': `open-${item.id}` }, title(item)), item.name && h('p', { class: 'small muted mono' }, item.id)] },
    { title: 'Available', kind: 'number', cell: item => number(item.available_count) },
    { title: 'Leased', kind: 'number', cell: item => number(item.acquired_count) },
    { title: 'Waiting', kind: 'number', cell: item => number(item.waiting_count) },
    { title: 'Size', kind: 'number', cell: item => number(item.browser_pool_config?.size) },
    { title: 'Created', cell: item => time(item.created_at) },
    { title: 'Actions', kind: 'controls', cell: item => actions(item, reload) },
  ];
  const { element, reload } = list(view, {
    target: 'browser_pools',
    query: view.query,
    project: true,
    live: true,
    feature: 'pools',
    render: items => table('Pools', columns, items),
    empty: view.query.query ? ['No pools found', 'No pool matches the filter.']
      : ['No pools', 'A pool holds browsers that are ready to be acquired.', button('New pool', () => create(), { kind: 'primary' })],
  });
  return [
    heading('Pools', null, button('New pool', create, { kind: 'primary' })),
    filters(view, [{ name: 'query', label: 'Id or name' }]),
    element,
  ];
}

function actions(item, reload, afterDelete = reload) {
  const name = title(item);
  return h('div', { class: 'actions' },
    button('Resize', () => resize(item, reload), { key: `resize-${item.id}`, hint: name }),
    button('Flush', () => flush(item, reload), { key: `flush-${item.id}`, hint: name }),
    button('Delete', () => remove(item, afterDelete), { kind: 'danger', key: `delete-${item.id}`, hint: name }));
}

async function createPool(view, reload) {
  const created = await formDialog({
    title: 'New pool',
    label: 'Create',
    fields: [
      { name: 'name', label: 'Name', maxlength: 255, hint: 'Optional. Letters, digits, dots, hyphens and underscores.' },
      { name: 'size', label: 'Size', type: 'number', min: 0, max: 10000, value: 1, required: true, hint: 'Browsers of the pool, leased ones included.' },
      { name: 'timeout_seconds', label: 'Idle timeout of a lease in seconds', type: 'number', min: 10, max: 259200, value: 600 },
      { name: 'start_url', label: 'Start URL', placeholder: 'https://example.com' },
      { name: 'headless', label: 'Headless', type: 'checkbox', hint: 'Without a display, live view and recordings.' },
    ],
    action: body => call('POST', 'browser_pools', { body, project: true, signal: view.signal }),
    done: 'The pool is created.',
  });
  if (created) reload();
}

async function resize(item, reload) {
  const changed = await formDialog({
    title: `Resize pool ${title(item)}`,
    label: 'Resize',
    fields: [{ name: 'size', label: 'Size', type: 'number', min: 0, max: 10000, required: true, value: item.browser_pool_config?.size }],
    action: body => call('PATCH', `browser_pools/${path(item.id)}`, { body, project: true }),
    done: `Pool ${title(item)} is resized.`,
  });
  if (changed) reload();
}

async function flush(item, reload) {
  const isDone = await confirmAction({
    title: `Flush pool ${title(item)}?`,
    text: `${plural(item.available_count, 'available browser')} will be destroyed and replaced. Leased browsers stay.`,
    label: 'Flush pool',
    action: () => call('POST', `browser_pools/${path(item.id)}/flush`, { project: true }),
    done: `Pool ${title(item)} is flushed.`,
  });
  if (isDone) reload();
}

async function remove(item, reload) {
  const isLeased = item.acquired_count > 0;
  const isDone = await confirmAction({
    title: `Delete pool ${title(item)}?`,
    text: isLeased ? `Its browsers end at once, ${plural(item.acquired_count, 'leased one')} included.` : 'Its browsers end at once.',
    label: 'Delete pool',
    action: () => call('DELETE', `browser_pools/${path(item.id)}`, { query: { force: isLeased ? 'true' : undefined }, project: true }),
    done: `Pool ${title(item)} is deleted.`,
  });
  if (isDone) reload();
}

function pool(view) {
  const fetch = () => call('GET', `browser_pools/${path(view.id)}`, { project: true, signal: view.signal });
  return detail(view, 'Pools', fetch, details);
}

function details(item, reload) {
  const { size, fill_rate_per_minute: fillRate, timeout_seconds: timeout, viewport, ...config } = item.browser_pool_config ?? {};
  const count = (label, value) => h('div', { class: 'panel count' }, h('strong', {}, number(value)), h('span', { class: 'muted' }, label));
  return [
    heading(title(item), null, actions(item, reload, () => { location.hash = href('pools'); })),
    h('div', { class: 'counts' }, count('available', item.available_count), count('leased', item.acquired_count), count('waiting', item.waiting_count), count('size', size)),
    h('div', { class: 'panel' }, facts([
      ['Id', h('code', {}, item.id)],
      ['Created', time(item.created_at)],
      ['Fill rate', fillRate && `${fillRate} % per minute`],
      ['Idle timeout', timeout && duration(timeout)],
      ['Screen', viewport && `${config.headless ? 'Headless, ' : ''}${viewport.width} × ${viewport.height}`],
      ['Start URL', config.start_url],
      ['Maximum age', config.max_age_seconds && duration(config.max_age_seconds)],
      ['Maximum leases', config.max_leases && number(config.max_leases)],
      ['Profile', item.profile_id && h('a', { href: href('profiles', item.profile_id) }, config.profile?.name ?? item.profile_id)],
      ['Configuration', item.config_hash && h('code', {}, item.config_hash)],
    ])),
  ];
}
