// The hosts that have registered themselves.

import { call, path } from './api.js';
import { confirmAction } from './dialogs.js';
import { badge, button, h, heading, number, time } from './dom.js';
import { list, table } from './list.js';

export function hosts(view) {
  const columns = [
    { title: 'Host', cell: item => [h('code', {}, item.id), h('p', { class: 'small muted mono' }, item.address), h('p', { class: 'small muted' }, `Version ${item.version}`)] },
    { title: 'State', cell: item => h('span', { class: 'tags' }, badge(item.state), item.draining && badge('draining')) },
    { title: 'Browser', cell: item => [item.session_id ? h('code', {}, item.session_id) : '–', h('p', { class: 'small muted' }, `Generation ${number(item.generation)}`)] },
    { title: 'Labels', cell: item => labels(item) },
    { title: 'Heartbeat', cell: item => time(item.last_heartbeat_at) },
    { title: 'Actions', kind: 'controls', cell: item => actions(item, reload) },
  ];
  const { element, reload } = list(view, {
    target: 'fleet/hosts',
    query: view.query,
    live: true,
    feature: 'registered hosts',
    render: items => table('Hosts', columns, items),
    empty: ['No registered hosts', 'Machines that register themselves with a join token appear here. Browsers on the machine of this server need no host.'],
  });
  return [heading('Hosts'), element];
}

function labels(item) {
  const entries = Object.entries(item.labels ?? {});
  return entries.length > 0 ? h('span', { class: 'tags' }, entries.map(([key, value]) => h('span', { class: 'tag' }, `${key}=${value}`))) : '–';
}

function actions(item, reload) {
  return h('div', { class: 'actions' },
    !item.draining && button('Drain', () => drain(item, reload), { key: `drain-${item.id}`, hint: item.id }),
    button('Delete', () => remove(item, reload), { kind: 'danger', key: `delete-${item.id}`, hint: item.id }));
}

async function drain(item, reload) {
  const isDone = await confirmAction({
    title: 'Drain the host?',
    text: `${item.id} gets no further browser. It ends when its browser has ended.`,
    label: 'Drain host',
    action: () => call('POST', `fleet/hosts/${path(item.id)}/drain`),
    done: 'The host is draining.',
  });
  if (isDone) reload();
}

async function remove(item, reload) {
  const isDone = await confirmAction({
    title: 'Delete the host?',
    text: `${item.id} is removed at once${item.session_id ? `, and its browser ${item.session_id} ends` : ''}.`,
    label: 'Delete host',
    action: () => call('DELETE', `fleet/hosts/${path(item.id)}`),
    done: 'The host is deleted.',
  });
  if (isDone) reload();
}
