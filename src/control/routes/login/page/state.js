// What to show for a state of the login flow. The API names fields and choices in two forms, of which
// the newer one is preferred.

const FINAL = { SUCCESS: 'success', FAILED: 'failed', EXPIRED: 'expired', CANCELED: 'canceled' };

const FIELD_KINDS = {
  identifier: 'identifier', password: 'password', code: 'code', totp_code: 'totp_code', totp_secret: 'totp_secret', text: 'text',
  // Types of `discovered_fields`.
  email: 'identifier', tel: 'identifier', number: 'text', url: 'text', totp: 'totp_code',
};
/** Types of `discovered_fields` that may be those of a code. */
const PLAIN_TYPES = ['text', 'tel', 'number'];
const INPUT_MODES = { email: 'email', tel: 'tel', number: 'numeric', url: 'url' };
const CHOICE_GROUPS = {
  mfa_method: 'mfa', sso_provider: 'sso', account: 'accounts',
  sign_in_method: 'methods', auth_method: 'methods', identifier_method: 'methods',
};

const list = value => (Array.isArray(value) ? value : []);

/** Returns the fields that the page of the site asks for. */
function fieldsOf(state) {
  if (list(state.fields).length > 0) {
    return state.fields.map(field => ({
      name: field.id,
      reference: field.ref ?? field.id,
      kind: FIELD_KINDS[field.type] ?? 'text',
      label: field.label,
      hint: field.hint,
      inputMode: field.input_mode,
      isRequired: field.required !== false,
      isRejected: field.reason === 'rejected',
    }));
  }
  return list(state.discovered_fields).map(field => ({
    name: field.name,
    reference: field.name,
    kind: field.linked_mfa_type && PLAIN_TYPES.includes(field.type) ? 'code' : FIELD_KINDS[field.type] ?? 'text',
    label: field.label,
    hint: field.hint,
    placeholder: field.placeholder,
    inputMode: INPUT_MODES[field.type],
    isRequired: field.required !== false,
    isRejected: false,
  }));
}

/** Returns the choices that the page of the site offers, each with the body that selects it. */
function choicesOf(state) {
  const { interaction_id } = state;
  if (list(state.choices).length > 0) {
    // Another choice belongs to those before it: "use another account".
    let group = 'methods';
    return state.choices.map(choice => ({
      group: group = CHOICE_GROUPS[choice.type] ?? group,
      mfaType: choice.mfa_type,
      label: choice.display_text || choice.label,
      details: [choice.masked_destination, choice.description, choice.context],
      body: { selected_choice_id: choice.id, interaction_id },
    }));
  }
  return [
    ...list(state.mfa_options).map(option => ({
      group: 'mfa', mfaType: option.type, label: option.label, details: [option.target, option.description],
      body: { mfa_option_id: option.type, interaction_id },
    })),
    ...list(state.pending_sso_buttons).map(button => ({
      group: 'sso', label: button.label, provider: button.provider, details: [],
      body: button.selector ? { sso_button_selector: button.selector, interaction_id } : { sso_provider: button.provider, interaction_id },
    })),
    ...list(state.sign_in_options).map(option => ({
      group: 'methods', label: option.label, details: [option.description],
      body: { sign_in_option_id: option.id, interaction_id },
    })),
  ];
}

/** Returns the body that submits the values of the fields, by name. */
export function answer(state, values) {
  const { interaction_id } = state;
  return list(state.fields).length > 0 ? { interaction_id, field_values: values } : { interaction_id, fields: values };
}

/** Returns a URL, or null for a text that is none. */
export function parseUrl(text) {
  try {
    return new URL(text);
  } catch {
    return null;
  }
}

/** Returns the URL of the live view if it may be shown in a frame of this page. */
function liveViewOf(state) {
  const url = parseUrl(state.live_view_url);
  if (url === null) return null;
  // A server behind a proxy may not know that the proxy has TLS.
  if (url.host === location.host) url.protocol = location.protocol;
  return url.origin === location.origin ? url.href : null;
}

/** Returns whether the flow has ended. */
export function isFinal(state) {
  return Object.hasOwn(FINAL, state.flow_status);
}

/**
 * Returns what to show: a kind with its details. Views with the same `key` are the same, so that an
 * event that repeats a state does not disturb the person.
 */
export function viewOf(state) {
  const view = describe(state);
  // Each response has another token in the URL of the live view, which is no other view.
  const { liveView, ...rest } = view;
  return { ...view, key: JSON.stringify([rest, Boolean(liveView), state.interaction_id]), state };
}

function describe(state) {
  const { website_error: siteError } = state;
  if (isFinal(state)) {
    const { error_code: code, error_message: message, post_login_url: page } = state;
    return { kind: FINAL[state.flow_status], siteError, code, message, page };
  }
  if (!state.flow_status) return { kind: state.status === 'AUTHENTICATED' ? 'success' : 'idle' };
  if (state.flow_step === 'AWAITING_INPUT') {
    const [fields, choices] = [fieldsOf(state), choicesOf(state)];
    if (fields.length + choices.length > 0) return { kind: 'form', siteError, fields, choices };
  }
  if (state.flow_step === 'AWAITING_EXTERNAL_ACTION') {
    return { kind: 'external', siteError, liveView: liveViewOf(state), choices: choicesOf(state) };
  }
  if (['DISCOVERING', 'INITIALIZED'].includes(state.flow_step)) return { kind: 'opening', who: state.who };
  return { kind: state.who === 'system' ? 'entering' : 'verifying', who: state.who ?? 'site' };
}
