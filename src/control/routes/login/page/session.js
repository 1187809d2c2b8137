// What survives a reload of this tab: the code until it is exchanged, the token, and the selected
// language. Nothing that a person enters is stored.

/** The connection that the address of the page names. */
export const connectionId = decodeURIComponent(location.pathname.split('/').pop());

// Used instead of the sessionStorage where the browser permits none, as in some frames.
const memory = new Map();

function read(name) {
  try {
    return sessionStorage.getItem(name);
  } catch {
    return memory.get(name) ?? null;
  }
}

function write(name, value) {
  try {
    if (value === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, value);
  } catch {
    memory.set(name, value);
  }
}

export const session = {
  /** The code of the link, until it is exchanged. */
  get code() { return window.handoffCode ?? read(`code:${location.pathname.split('/').pop()}`); },
  forgetCode() {
    delete window.handoffCode;
    write(`code:${location.pathname.split('/').pop()}`, null);
  },

  /** The token that the code was exchanged for. */
  get token() { return read(`token:${connectionId}`); },
  set token(token) { write(`token:${connectionId}`, token); },

  get language() { return read('language'); },
  set language(language) { write('language', language); },
};
