// The profiles of a project, and the versions of one with their receipts.

import { call, path, send } from './api.js';
import { confirmAction, formDialog } from './dialogs.js';
import { announce, badge, button, bytes, capitalize, facts, h, heading, number, plural, time } from './dom.js';
import { detail, filters, href, list, table } from './list.js';

const DOWNLOAD_TIMEOUT = 3_600_000;
/** The delay after which the URL of a download is revoked: it is being read by then. */
const REVOKE_DELAY = 60_000;

export function profiles(view) {
  return view.id ? profile(view) : profileList(view);
}

function title(item) {
  return item.name ?? item.id;
}

function profileList(view) {
  const create = () => createProfile(view, reload);
  const columns = [
    { title: 'Profile', cell: item => [h('a', { href: href('profiles', item.id), 'data-key': `open-${item.id}` }, title(item)), item.name && h('p', { class: 'small muted mono' }, item.id)] },
    { title: 'Version', kind: 'number', cell: item => (item.version ? number(item.version) : h('span', { class: 'muted' }, 'empty')) },
    { title: 'Size', kind: 'number', cell: item => bytes(item.size_bytes) },
    { title: 'Changed', cell: item => time(item.updated_at) },
    { title: 'Last used', cell: item => time(item.last_used_at) },
    { title: 'Actions', kind: 'controls', cell: item => actions(view, item, reload) },
  ];
  const { element, reload } = list(view, {
    target: 'profiles',
    query: view.query,
    project: true,
    live: true,
    feature: 'profiles',
    render: items => table('Profiles', columns, items),
    empty: view.query.query ? ['No profiles found', 'No profile matches the filter.']
      : ['No profiles', 'A profile keeps the cookies and the storage of browsers that save to it.', button('New profile', () => create(), { kind: 'primary' })],
  });
  return [
    heading('Profiles', null, button('New profile', create, { kind: 'primary' })),
    filters(view, [{ name: 'query', label: 'Id or name' }]),
    element,
  ];
}

function actions(view, item, reload, afterDelete = reload) {
  const name = title(item);
  return h('div', { class: 'actions' },
    item.version && button('Download', event => download(view, item, event.currentTarget), { key: `download-${item.id}`, hint: name }),
    button('Rename', () => rename(item, reload), { key: `rename-${item.id}`, hint: name }),
    button('Delete', () => remove(item, afterDelete), { kind: 'danger', key: `delete-${item.id}`, hint: name }));
}

const NAME = { name: 'name', label: 'Name', maxlength: 255, hint: 'Letters, digits, dots, hyphens and underscores.' };

async function createProfile(view, reload) {
  const created = await formDialog({
    title: 'New profile',
    label: 'Create',
    fields: [{ ...NAME, hint: `Optional. ${NAME.hint}` }],
    action: body => call('POST', 'profiles', { body, project: true, signal: view.signal }),
    done: 'The profile is created.',
  });
  if (created) reload();
}

async function rename(item, reload) {
  const changed = await formDialog({
    title: `Rename profile ${title(item)}`,
    label: 'Rename',
    fields: [{ ...NAME, value: item.name, required: true }],
    action: body => call('PATCH', `profiles/${path(item.id)}`, { body, project: true }),
    done: 'The profile is renamed.',
  });
  if (changed) reload();
}

async function remove(item, reload) {
  const isDone = await confirmAction({
    title: `Delete profile ${title(item)}?`,
    text: 'All its versions are deleted. This cannot be undone.',
    label: 'Delete profile',
    action: () => call('DELETE', `profiles/${path(item.id)}`, { project: true }),
    done: `Profile ${title(item)} is deleted.`,
  });
  if (isDone) reload();
}

/** Saves the archive of a profile. A link cannot, because the key must not be in a URL. */
async function download(view, item, control) {
  control.disabled = true;
  announce(`Downloading ${bytes(item.size_bytes)}…`);
  try {
    const response = await send('GET', `profiles/${path(item.id)}/download`, { project: true, signal: view.signal, timeout: DOWNLOAD_TIMEOUT });
    const url = URL.createObjectURL(await response.blob());
    h('a', { href: url, download: `${title(item)}.tar.zst` }).click();
    // The browser may read the URL some time after the click.
    setTimeout(() => URL.revokeObjectURL(url), REVOKE_DELAY);
  } catch (error) {
    if (!view.signal.aborted) announce(`The download has failed: ${error.message}`);
  } finally {
    control.disabled = false;
  }
}

function profile(view) {
  const fetch = () => call('GET', `profiles/${path(view.id)}`, { project: true, signal: view.signal });
  return detail(view, 'Profiles', fetch, (item, reload) => details(view, item, reload));
}

function details(view, item, reload) {
  const { last_save_error: failure } = item;
  const versions = list(view, {
    target: `profiles/${path(item.id)}/versions`,
    query: view.query,
    project: true,
    render: items => h('ol', { class: 'stack plain' }, items.map(version => receipt(item, version, reload))),
    empty: ['No versions', 'The profile is empty: no browser has saved to it yet.'],
  });
  return [
    heading(title(item), null, actions(view, item, reload, () => { location.hash = href('profiles'); })),
    failure && h('div', { class: 'error' }, h('p', {}, h('strong', {}, 'The last save has failed. '), 'The versions are unchanged.'),
      h('p', { class: 'small' }, capitalize(failure.message), ' · ', time(failure.failed_at))),
    h('div', { class: 'panel' }, facts([
      ['Id', h('code', {}, item.id)],
      ['Version', item.version ? number(item.version) : 'empty'],
      ['Size', item.version && bytes(item.size_bytes)],
      ['Created', time(item.created_at)],
      ['Last used', item.last_used_at && time(item.last_used_at)],
    ])),
    h('h2', {}, 'Versions'),
    versions.element,
  ].filter(Boolean);
}

/** Returns a version with its receipt: what the stored archive was found to contain. */
function receipt(item, version, reload) {
  const cookies = Object.entries(version.cookies ?? {}).sort(([, a], [, b]) => b - a);
  const origins = version.origins ?? [];
  const skipped = version.skipped ?? [];
  const total = cookies.reduce((sum, [, count]) => sum + count, 0);
  const part = (label, entries) => entries.length > 0 && h('details', {}, h('summary', {}, label), h('ul', { class: 'plain mono small' }, entries.map(entry => h('li', {}, entry))));
  const text = entry => (typeof entry === 'string' ? entry : JSON.stringify(entry));
  return h('li', { class: 'panel' },
    h('div', { class: 'row' },
      h('h3', {}, `Version ${version.version} `, version.is_current && badge('current')),
      !version.is_current && button('Restore', () => restore(item, version, reload), { key: `restore-${version.version}`, hint: `version ${version.version}` })),
    h('p', { class: 'small muted' }, 'Saved ', time(version.created_at), ` · ${bytes(version.size_bytes)}`,
      version.chromium_version && ` · Chromium ${version.chromium_version}`, version.restored_from && ` · Restored from version ${version.restored_from}`),
    version.sha256 && h('p', { class: 'small muted mono' }, `SHA-256 ${version.sha256}`),
    cookies.length + origins.length + skipped.length === 0 && h('p', { class: 'small' }, 'No cookies and no storage.'),
    part(`${plural(total, 'cookie')} of ${plural(cookies.length, 'domain')}`, cookies.map(([domain, count]) => `${domain} ${count}`)),
    part(`${plural(origins.length, 'origin')} with storage`, origins.map(text)),
    part(plural(skipped.length, 'skipped entry', 'skipped entries'), skipped.map(text)));
}

async function restore(item, { version }, reload) {
  const isDone = await confirmAction({
    title: `Restore version ${version}?`,
    text: `A new version with the content of version ${version} becomes the current one, with which browsers start from now on.`,
    label: 'Restore version',
    action: () => call('POST', `profiles/${path(item.id)}/versions/${path(String(version))}/restore`, { project: true }),
    done: `Version ${version} is restored.`,
  });
  if (isDone) reload();
}
