// The states of the login page: what the API says in each, and the view that is shown.

const later = minutes => new Date(Date.now() + minutes * 60_000).toISOString();
const progress = (flow_step, who) => ({ flow_status: 'IN_PROGRESS', flow_step, who, deadline: later(2) });

const DISCOVERED_TYPES = { identifier: 'email', password: 'password', code: 'code', text: 'text' };

/** Returns a request for input. Like the server, it names the fields in both forms. */
function input(more) {
  const discovered = more.fields?.map(({ ref, type, label, hint, required }) => ({
    name: ref, label, type: DISCOVERED_TYPES[type] ?? 'text', selector: `#${ref}`, hint, required,
  }));
  return { ...progress('AWAITING_INPUT', 'user'), interaction_id: 'int_1', deadline: later(9), discovered_fields: discovered, ...more };
}

function field(id, ref, type, label, more) {
  return { id, ref, type, reason: 'missing', label, input_mode: 'text', required: true, ...more };
}

const IDENTIFIER = field('field_1_1', 'username', 'identifier', 'Email', { input_mode: 'email' });
const PASSWORD = field('field_1_2', 'password', 'password', 'Password');
const CODE_FIELD = field('field_3_1', 'code', 'code', 'Security code', { hint: 'Sent to the number that ends with 42', input_mode: 'numeric' });
const MARKUP = '<img src=x onerror="document.title=1">Wrong <b>password</b>. 2 attempts left.';

export const opening = () => progress('DISCOVERING', 'system');
export const entering = () => progress('SUBMITTING', 'system');
export const verifying = () => progress('SUBMITTING', 'site');
export const credentials = () => input({ fields: [IDENTIFIER, PASSWORD] });
export const rejected = () => input({
  interaction_id: 'int_2', website_error: MARKUP, fields: [IDENTIFIER, { ...PASSWORD, reason: 'rejected' }],
});
export const code = () => input({ interaction_id: 'int_3', fields: [CODE_FIELD] });
export const mfa = () => input({
  interaction_id: 'int_4',
  choices: [
    { id: 'choice_4_1', type: 'mfa_method', label: 'Text me', mfa_type: 'sms', masked_destination: '+49 ••• ••• 42' },
    { id: 'choice_4_2', type: 'mfa_method', label: 'Email me', mfa_type: 'email', masked_destination: 'j•••@example.com' },
    { id: 'choice_4_3', type: 'mfa_method', label: '', mfa_type: 'totp' },
    { id: 'choice_4_4', type: 'mfa_method', label: 'Approve on your phone', mfa_type: 'push', description: 'Pixel 9' },
  ],
  mfa_options: [
    { type: 'sms', label: 'Text me', target: '+49 ••• ••• 42' }, { type: 'email', label: 'Email me', target: 'j•••@example.com' },
    { type: 'totp', label: '' }, { type: 'push', label: 'Approve on your phone', description: 'Pixel 9' },
  ],
});
export const liveView = fake => ({
  ...progress('AWAITING_EXTERNAL_ACTION', 'user'), interaction_id: 'int_5', deadline: later(9), live_view_url: fake.liveViewUrl(),
  external_action_message: "Complete the site's check for robots in the live view.",
});
export const device = () => ({
  ...progress('AWAITING_EXTERNAL_ACTION', 'user'), interaction_id: 'int_6', deadline: later(1.4),
  external_action_message: 'Approve the login on your device. The site shows: 42',
  choices: [{ id: 'choice_6_1', type: 'mfa_method', label: '', mfa_type: 'switch' }],
});
export const success = () => ({ flow_status: 'SUCCESS', flow_step: 'COMPLETED', who: 'none', post_login_url: 'https://shop.example.com/account' });
export const failed = () => ({
  flow_status: 'FAILED', flow_step: 'COMPLETED', who: 'none', website_error: 'This account is locked. Call our service team at +49 30 1234567.',
  error_code: 'refused_by_site', error_message: 'the site has refused the login',
});
export const unreachable = () => ({
  flow_status: 'FAILED', flow_step: 'COMPLETED', who: 'none', error_code: 'site_unavailable', error_message: 'the site could not be loaded',
});
export const crashed = () => ({
  flow_status: 'FAILED', flow_step: 'COMPLETED', who: 'none', error_code: 'browser_lost', error_message: 'the browser has crashed or was deleted',
});
export const expired = () => ({
  flow_status: 'EXPIRED', flow_step: 'COMPLETED', who: 'none', error_code: 'input_timeout', error_message: 'no input was received within 10 minutes',
});
export const canceled = () => ({
  flow_status: 'CANCELED', flow_step: 'COMPLETED', who: 'none', error_code: 'canceled', error_message: 'the login was canceled',
});

/** Every state: its name, the kind of its view, and how the server gets into it. */
export const STATES = {
  checking: { kind: 'checking', prepare: fake => { fake.isUnreachable = true; }, errors: [/ERR_/] },
  opening: { kind: 'opening', state: opening },
  entering: { kind: 'entering', state: entering },
  verifying: { kind: 'verifying', state: verifying },
  credentials: { kind: 'form', state: credentials },
  rejected: { kind: 'form', state: rejected },
  recorded: { kind: 'form', state: credentials, prepare: fake => { fake.connection.record_session = true; } },
  code: { kind: 'form', state: code },
  question: {
    kind: 'form', state: () => input({
      fields: [
        field('field_2_1', 'field_2_1', 'text', 'What was the name of your first pet?'),
        field('field_2_2', 'totp_secret', 'totp_secret', '', { required: false }),
      ],
    }),
  },
  mfa: { kind: 'form', state: mfa },
  accounts: {
    kind: 'form', state: () => input({
      choices: [
        { id: 'choice_1_1', type: 'account', label: 'Jane Doe', description: 'jane.doe@example.com' },
        { id: 'choice_1_2', type: 'account', label: 'Jane Doe (work)', description: 'jane@a-very-long-company-name.example.com' },
        { id: 'choice_1_3', type: 'other', label: 'Use another account' },
      ],
    }),
  },
  methods: {
    kind: 'form', state: () => input({
      discovered_fields: [{ name: 'login', type: 'email', label: 'Work email', placeholder: 'you@company.com', required: true }],
      pending_sso_buttons: [{ label: 'Continue with Identity', provider: 'identity', selector: '#sso' }, { provider: 'workplace' }],
      sign_in_options: [{ id: 'phone', label: 'Use a phone number' }, { id: 'qr', label: 'Scan a QR code', description: 'With the app on your phone' }],
    }),
  },
  external: { kind: 'external', state: liveView },
  device: { kind: 'external', state: device },
  success: { kind: 'success', state: success },
  failed: { kind: 'failed', state: failed },
  unreachable: { kind: 'failed', state: unreachable },
  crashed: { kind: 'failed', state: crashed },
  expired: { kind: 'expired', state: expired },
  canceled: { kind: 'canceled', state: canceled },
  spent: { kind: 'spent', state: opening, prepare: fake => { fake.isCodeSpent = true; }, errors: [/status of 401/] },
  incomplete: { kind: 'incomplete', link: link => link.split('#')[0] },
  busy: { kind: 'checking', prepare: fake => { fake.refusedExchanges = Infinity; }, errors: [/status of 429/] },
  ended: { kind: 'ended', state: opening, prepare: fake => { fake.isTokenExpired = true; }, errors: [/status of 401/] },
  gone: { kind: 'gone', link: link => link.replace('/conn_01', '/conn_02'), errors: [/status of 404/] },
  idle: { kind: 'idle' },
};
