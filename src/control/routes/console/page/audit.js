// The audit log: requests that changed something, and failed authentications.

import { exactTime, h, heading } from './dom.js';
import { filters, href, list, table } from './list.js';

const DAY = 86_400_000;

export function audit(view) {
  const { start, end, page_token: token, method, auth_strategy: strategy, search } = view.query;
  const range = { start: toTime(start, Date.now() - DAY), end: toTime(end, Date.now() + 1000) };
  const projectNames = new Map([...document.getElementById('project-select').options].map(({ value, text }) => [value, text]));
  const columns = [
    { title: 'Time', cell: item => exactTime(item.timestamp) },
    { title: 'Request', cell: item => [h('strong', {}, item.action), h('p', { class: 'small muted mono wrap' }, `${item.method} ${item.path}`), h('p', { class: 'small muted mono' }, item.request_id)] },
    { title: 'Status', cell: item => h('span', { class: `badge ${item.status < 400 ? 'good' : 'bad'}` }, item.status) },
    { title: 'Caller', cell: item => [item.user_id ? h('code', {}, item.user_id) : '–', h('p', { class: 'small muted' }, `${item.auth_strategy} · ${item.client_ip}`)] },
    { title: 'Project', cell: item => (item.project_id ? projectNames.get(item.project_id) ?? h('code', {}, item.project_id) : '–') },
  ];
  const { element } = list(view, {
    target: 'audit-logs',
    query: { ...range, page_token: token, method, auth_strategy: strategy, search },
    render: items => table('Audit log', columns, items),
    empty: ['No entries', 'No request matches the filters.'],
    pager: (_, { nextToken }) => pager(view, range, nextToken),
  });
  return [
    heading('Audit log'),
    filters(view, [
      { name: 'start', label: 'From', type: 'datetime-local', value: toInput(range.start) },
      { name: 'end', label: 'Until', type: 'datetime-local', value: end ? toInput(range.end) : '' },
      { name: 'method', label: 'Method', options: [['', 'All'], ...['POST', 'PUT', 'PATCH', 'DELETE', 'GET'].map(name => [name, name])] },
      { name: 'auth_strategy', label: 'Credential', options: [['', 'All'], ['api_key', 'API key'], ['session_token', 'Session token'], ['flow_token', 'Login flow token'], ['host', 'Host'], ['none', 'None']] },
      { name: 'search', label: 'Text' },
    ]),
    element,
  ];
}

function toTime(text, fallback) {
  const time = new Date(text ?? fallback);
  return (Number.isNaN(time.getTime()) ? new Date(fallback) : time).toISOString();
}

/** Converts a time to the local time that an input shows. */
function toInput(text) {
  const time = new Date(text);
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** Returns the links to the first and the next page. All pages are of one period. */
function pager(view, range, nextToken) {
  const { page_token: token, ...query } = view.query;
  if (!token && !nextToken) return [];
  return [h('nav', { 'aria-label': 'Pages' },
    token && h('a', { class: 'button', href: href('audit', null, query) }, 'Newest'),
    nextToken && h('a', { class: 'button', href: href('audit', null, { ...query, ...range, page_token: nextToken }) }, 'Older'))];
}
