// The API keys that the key of the session may manage.

import { call, path, session } from './api.js';
import { confirmAction, formDialog, secretDialog } from './dialogs.js';
import { badge, button, h, heading, time } from './dom.js';
import { filters, list, table } from './list.js';

const MAX_DAYS = 3650;

export function keys(view) {
  const create = () => createKey(view, reload);
  const columns = [
    { title: 'Name', cell: item => [h('strong', {}, item.name), item.id === session.context.principal.id && [' ', badge('this key')]] },
    { title: 'Key', cell: item => h('code', {}, item.masked_key) },
    { title: 'Valid for', cell: item => (item.project_id ? item.project_name ?? item.project_id : 'All projects') },
    { title: 'Created', cell: item => [time(item.created_at), item.created_by && h('p', { class: 'small muted' }, `by ${item.created_by.name}`)] },
    { title: 'Expires', cell: item => (item.deleted_at ? ['Deleted ', time(item.deleted_at)] : item.expires_at ? time(item.expires_at) : 'Never') },
    { title: 'Actions', kind: 'controls', cell: item => !item.deleted_at && h('div', { class: 'actions' },
      button('Delete', () => remove(item, reload), { kind: 'danger', key: `delete-${item.id}`, hint: item.name })) },
  ];
  const { element, reload } = list(view, {
    target: 'org/api_keys',
    query: view.query,
    render: items => table('API keys', columns, items),
    empty: ['No keys found', 'No key matches the filters.'],
  });
  return [
    heading('API keys', null, button('New key', create, { kind: 'primary' })),
    filters(view, [
      { name: 'query', label: 'Id, name or project' },
      { name: 'status', label: 'Status', options: [['', 'Active'], ['deleted', 'Deleted'], ['all', 'All']] },
    ]),
    element,
  ];
}

async function createKey(view, reload) {
  const projects = [...document.getElementById('project-select').options].map(({ value, text }) => [value, text]);
  const created = await formDialog({
    title: 'New API key',
    label: 'Create',
    fields: [
      { name: 'name', label: 'Name', required: true, maxlength: 255 },
      session.isOrganizationWide && { name: 'project_id', label: 'Valid for', options: [['', 'All projects'], ...projects] },
      { name: 'days_to_expire', label: 'Days until it expires', type: 'number', min: 1, max: MAX_DAYS, hint: 'Empty: it does not expire before the key that creates it.' },
    ].filter(Boolean),
    action: body => call('POST', 'org/api_keys', { body, signal: view.signal }),
  });
  if (!created) return;
  reload();
  secretDialog({
    title: `API key ${created.name}`,
    text: 'Copy the key now: it is not shown again.',
    label: 'API key',
    value: created.key,
  });
}

async function remove(item, reload) {
  const isOwn = item.id === session.context.principal.id;
  const isDone = await confirmAction({
    title: `Delete key ${item.name}?`,
    text: isOwn ? 'You are signed in with this key, and will be signed out.' : 'Requests with this key are rejected from then on, and the links that it has created end.',
    label: 'Delete key',
    action: () => call('DELETE', `org/api_keys/${path(item.id)}`),
    done: `Key ${item.name} is deleted.`,
  });
  if (isDone) reload();
}
