// Loaded by a page with a seed: changes the page at random, and keeps `data-right`, the name of the
// value that belongs into a field, true. Forms other than that of the login keep what they are
// recognized by.

(() => {
  let state = Number(new URLSearchParams(location.search).get('seed'));
  const random = (end) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % end;
  };
  const pick = (items) => items[random(items.length)];
  const name = () => `x${random(1e6)}`;
  const fields = () => allFields().filter((field) => field.dataset.right);
  const query = (selector) => [...Document.prototype.querySelectorAll.call(document, selector)];

  function allFields(root = document) {
    const call = root instanceof Document ? Document.prototype.querySelectorAll : root.querySelectorAll;
    return [...call.call(root, '*')].flatMap((element) => {
      const shadow = shadowRootOf(element);
      return [...(element instanceof HTMLInputElement ? [element] : []), ...(shadow ? allFields(shadow) : [])];
    });
  }

  const HIDDEN = [
    (element) => (element.style.display = 'none'),
    (element) => (element.style.visibility = 'hidden'),
    (element) => (element.style.opacity = '0'),
    (element) => element.setAttribute('style', 'position: absolute; left: -9999px'),
    (element) => element.setAttribute('style', 'position: absolute; clip: rect(0 0 0 0)'),
    (element) => element.setAttribute('style', 'width: 1px; height: 1px; padding: 0; border: 0'),
    (element) => (element.style.clipPath = 'circle(0)'),
    (element) => (element.style.transform = 'scale(0.01)'),
    (element) => (element.style.filter = 'opacity(0%)'),
    (element) => (element.hidden = true),
    (element) => (element.inert = true),
    (element) => {
      element.tabIndex = -1;
      element.ariaHidden = 'true';
    },
    (element) => wrap(element, 'height: 0; overflow: hidden'),
    (element) => wrap(element, 'opacity: 0.05'),
    (element) => {
      const box = wrap(element, 'position: relative; width: 300px; height: 40px; overflow: hidden');
      const cover = document.createElement('div');
      cover.style = 'position: absolute; inset: 0; background: white';
      box.append(cover);
    },
  ];

  function wrap(element, style) {
    const box = document.createElement('div');
    box.style = style;
    element.replaceWith(box);
    box.append(element);
    return box;
  }

  const OTHER_FORMS = [
    '<form><label>Email <input type=email></label><label>Password <input type=password></label><label>Confirm password <input type=password></label><button>Go</button></form>',
    '<form><input name=username><input type=password autocomplete=new-password><button>Go</button></form>',
    '<form id=register><input name=email><input type=password name=password><button>Create account</button></form>',
    '<form role=search><input name=username placeholder="Find a user"><button>Go</button></form>',
    '<form><input type=email name=email placeholder="Newsletter"><button>Subscribe</button></form>',
    '<form><input name=email placeholder="Your email"><button>Abonnieren</button></form>',
    '<form><input name=name placeholder="User name"><textarea name=text></textarea><button>Send</button></form>',
    '<form><label>Promo code <input name=code></label><button>Apply</button></form>',
    '<form><p>Forgot your password? Enter your email.</p><input name=email><button>Send</button></form>',
    '<form><label>Password hint <input name=hint></label><button>Save</button></form>',
    '<form><label>Wi-Fi password <input name=key></label><button>Connect</button></form>',
    '<form><label>Password <input name=password></label><button>Save</button></form>',
    '<form><label>Card number <input name=card></label><label>CVV <input type=password name=cvv></label><button>Pay</button></form>',
    '<form><input autocomplete=cc-number><input type=password autocomplete=cc-csc><button>Pay</button></form>',
    '<form><label>Security code <input name=securityCode autocomplete=cc-csc></label><button>Pay</button></form>',
    '<form><label>Code <input name=code></label><button>Apply</button></form>',
  ];
  const OTHER_FIELDS = ['Company', 'Captcha', 'Promo code', 'Date of birth', 'First name', 'Comment'];

  const addForm = () => {
    const holder = document.createElement('template');
    holder.innerHTML = pick(OTHER_FORMS);
    const body = query('body')[0];
    body.insertBefore(holder.content, random(2) ? body.firstChild : null);
  };
  const decoyOf = (field) => {
    const decoy = field.cloneNode();
    delete decoy.dataset.right;
    field[random(2) ? 'before' : 'after'](decoy);
    return decoy;
  };

  // Each takes a field that may get a value.
  const MUTATIONS = [
    (field) => field.setAttribute('name', name()),
    (field) => field.setAttribute('id', name()),
    (field) => field.removeAttribute(pick(['autocomplete', 'placeholder', 'aria-label', 'name'])),
    (field) => {
      const texts = [...(field.labels?.[0]?.childNodes ?? [])].filter((node) => node instanceof Text);
      if (texts.length > 0) pick(texts).data = name();
    },
    (field) => wrap(field, ''),
    (field) => wrap(wrap(field, 'padding: 1px'), 'display: inline-block'),
    (field) => {
      delete field.dataset.right;
      pick(HIDDEN)(field);
    },
    (field) => pick(HIDDEN)(decoyOf(field)),
    (field) => pick(HIDDEN)(decoyOf(field)),
    (field) => {
      // A copy beside a label would be another field than the one with the label, and a copy of a
      // character's field could stand for one that is hidden.
      const names = ['aria-label', 'aria-labelledby', 'autocomplete', 'placeholder'];
      if (!names.some((name) => field.hasAttribute(name))) return;
      if (field.labels.length > 0 || field.maxLength === 1) return;
      decoyOf(field);
      delete field.dataset.right;
    },
    (field) => {
      delete field.dataset.right;
      field[pick(['readOnly', 'disabled'])] = true;
    },
    (field) => {
      const label = document.createElement('label');
      label.append(`${pick(OTHER_FIELDS)} `, document.createElement('input'));
      const holder = field.closest('label') ?? field;
      holder[random(2) ? 'before' : 'after'](label);
    },
    (field) => {
      const form = field.closest('form');
      if (!form || random(4)) return;
      form.setAttribute('action', `${unrelatedSite}/take`);
      for (const other of fields()) if (other.closest('form') === form) delete other.dataset.right;
    },
    (field) => {
      field.addEventListener(
        pick(['focus', 'input']),
        () => {
          const copy = field.cloneNode();
          copy.value = field.value;
          field.replaceWith(copy);
        },
        { once: true },
      );
    },
    addForm,
    addForm,
    // A dialog that is moved is no longer modal.
    () => query('body')[0].append(...query('body > :not(dialog)').sort(() => random(3) - 1)),
    () => {
      const hosts = query('body > :is(form, div, main)').filter((element) => !element.shadowRoot);
      if (hosts.length === 0) return;
      const content = pick(hosts);
      const host = document.createElement('div');
      content.before(host);
      host.attachShadow({ mode: pick(['open', 'closed']) }).append(content);
    },
  ];

  addEventListener('DOMContentLoaded', () => {
    for (let count = 1 + random(4); count > 0; count -= 1) {
      const rights = fields();
      if (rights.length > 0) pick(MUTATIONS)(pick(rights));
    }
  });
})();
