// The projects of the organization, with their limits.

import { call, path, session } from './api.js';
import { confirmAction, formDialog } from './dialogs.js';
import { announce, badge, button, h, heading, number, time } from './dom.js';
import { filters, list, table } from './list.js';

const NAME = { name: 'name', label: 'Name', required: true, maxlength: 255, hint: 'Without / and %.' };
const MAX_LIMIT = 1_000_000;

export function projects(view) {
  const canChange = session.isOrganizationWide;
  const changed = () => {
    reload();
    view.refreshProjects();
  };
  const create = () => createProject(view, changed);
  const columns = [
    { title: 'Project', cell: item => [h('strong', {}, item.name), h('p', { class: 'small muted mono' }, item.id)] },
    { title: 'Status', cell: item => badge(item.status) },
    { title: 'Created', cell: item => time(item.created_at) },
    { title: 'Changed', cell: item => time(item.updated_at) },
    { title: 'Actions', kind: 'controls', cell: item => canChange && actions(view, item, changed) },
  ];
  const { element, reload } = list(view, {
    target: 'org/projects',
    query: view.query,
    render: items => table('Projects', columns, items),
    empty: ['No projects found', 'No project matches the filter.'],
  });
  const usage = h('span');
  if (canChange) showUsage(view, usage);
  return [
    heading('Projects', usage, canChange && button('New project', create, { kind: 'primary' })),
    filters(view, [{ name: 'query', label: 'Id or name' }]),
    element,
  ];
}

async function showUsage(view, element) {
  const limits = await call('GET', 'org/limits', { signal: view.signal }).catch(() => null);
  if (!limits) return;
  const perProject = limits.default_project_max_concurrent_sessions;
  element.textContent = `${number(limits.concurrent_sessions_used)} of ${number(limits.max_concurrent_sessions)} browsers in use.`
    + (perProject === null ? '' : ` A project without a limit of its own has ${number(perProject)}.`);
}

function actions(view, item, changed) {
  const isActive = item.status === 'active';
  const control = (label, task, kind) => button(label, task, { kind, key: `${label}-${item.id}`, hint: item.name });
  return h('div', { class: 'actions' },
    isActive && item.id !== session.project && control('Select', () => view.selectProject(item)),
    isActive && item.id === session.project && h('span', { class: 'tag' }, 'Selected'),
    control('Rename', () => rename(item, changed)),
    control('Limits', () => changeLimits(view, item)),
    isActive ? control('Archive', () => archive(item, changed)) : control('Activate', () => activate(item, changed)),
    control('Delete', () => remove(item, changed), 'danger'));
}

async function createProject(view, changed) {
  const created = await formDialog({
    title: 'New project',
    label: 'Create',
    fields: [NAME],
    action: body => call('POST', 'org/projects', { body, signal: view.signal }),
    done: 'The project is created.',
  });
  if (created) changed();
}

async function rename(item, changed) {
  const renamed = await formDialog({
    title: `Rename project ${item.name}`,
    label: 'Rename',
    fields: [{ ...NAME, value: item.name }],
    action: body => call('PATCH', `org/projects/${path(item.id)}`, { body }),
    done: 'The project is renamed.',
  });
  if (renamed) changed();
}

async function changeLimits(view, item) {
  const target = `org/projects/${path(item.id)}/limits`;
  let limits;
  try {
    limits = await call('GET', target, { signal: view.signal });
  } catch (error) {
    announce(`The limits cannot be read: ${error.message}`);
    return;
  }
  const changed = await formDialog({
    title: `Limits of project ${item.name}`,
    text: 'Browsers beyond a new limit stay.',
    label: 'Save',
    fields: [{
      name: 'max_concurrent_sessions', label: 'Browsers at once', type: 'number', min: 1, max: MAX_LIMIT,
      value: limits.max_concurrent_sessions, hint: 'Empty: the limit of the organization applies.',
    }],
    // 0 removes the limit.
    action: ({ max_concurrent_sessions: limit = 0 }) => call('PATCH', target, { body: { max_concurrent_sessions: limit } }),
  });
  if (changed) announce(`The limits of project ${item.name} are changed.`);
}

async function archive(item, changed) {
  const isDone = await confirmAction({
    title: `Archive project ${item.name}?`,
    text: 'Its browsers end at once, and its keys do not work until it is active again.',
    label: 'Archive project',
    action: () => call('PATCH', `org/projects/${path(item.id)}`, { body: { status: 'archived' } }),
    done: `Project ${item.name} is archived.`,
  });
  if (isDone) changed();
}

async function activate(item, changed) {
  try {
    await call('PATCH', `org/projects/${path(item.id)}`, { body: { status: 'active' } });
    announce(`Project ${item.name} is active.`);
  } catch (error) {
    announce(`The project cannot be activated: ${error.message}`);
  }
  changed();
}

async function remove(item, changed) {
  const isDone = await confirmAction({
    title: `Delete project ${item.name}?`,
    text: 'Its keys stop working, and its replays are no longer listed. A project with active browsers cannot be deleted.',
    label: 'Delete project',
    action: () => call('DELETE', `org/projects/${path(item.id)}`),
    done: `Project ${item.name} is deleted.`,
  });
  if (isDone) changed();
}
