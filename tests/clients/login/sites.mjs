// A person who signs in to several sites at once, of which `BERTH_TEST_LOGIN` has the links. Every second
// login is done with the keyboard alone.
import assert from 'node:assert/strict';
import { runPages } from '../pages.mjs';
import { control, endpoint } from './harness.mjs';

const logins = JSON.parse(process.env.BERTH_TEST_LOGIN);
const PHONE = 'https://phone.test/';
const REQUEST = '#view:is([data-kind=form], [data-kind=external])';
const END = '#view:is([data-kind=success], [data-kind=failed], [data-kind=expired], [data-kind=canceled])';

/** Moves the focus to an element with Tab. */
async function tabToElement(page, element) {
  const hasFocus = () => element.evaluate(node => node === document.activeElement);
  for (let count = 0; count < 60; count += 1) {
    if (await hasFocus()) return;
    await page.keyboard.press('Tab');
  }
  assert.fail(`Tab does not reach ${await element.evaluate(node => node.outerHTML)}`);
}

/** A person with a keyboard, and perhaps a mouse. */
class Person {
  #login;
  #page;
  #phone;
  #hasMouse;
  #isMistaken;

  constructor(login, { page, phone, hasMouse }) {
    this.#login = login;
    this.#page = page;
    this.#phone = phone;
    this.#hasMouse = hasMouse;
    this.#isMistaken = login.isMistaken;
  }

  /** Answers all requests, and returns the kind of the view at the end. */
  async signIn() {
    const view = this.#page.locator(`${REQUEST}, ${END}`);
    for (;;) {
      await view.waitFor();
      if (await this.#page.locator(END).count() > 0) return this.#page.locator('#view').getAttribute('data-kind');
      const heading = await this.#page.locator('#view h1').elementHandle();
      await this.#answer();
      // The next state replaces the view.
      await this.#page.waitForFunction(element => !element.isConnected, heading);
    }
  }

  async #answer() {
    const { choice, site } = this.#login;
    if (await this.#page.locator('#view[data-kind=external]').count() > 0) return this.#approve();
    const button = this.#page.locator('#view button.choice', { hasText: choice ?? site });
    if (await button.count() > 0) return this.#press(button);
    const inputs = await this.#page.locator('#view form input').all();
    assert.ok(inputs.length > 0, `${site} requests an unknown choice`);
    for (const input of inputs) await this.#enter(input, await this.#value(input));
    return this.#press(this.#page.locator('#view form button[type=submit]'));
  }

  async #focus(element) {
    if (this.#hasMouse) await element.click();
    else await tabToElement(this.#page, await element.elementHandle());
  }

  async #enter(input, text) {
    await this.#focus(input);
    await this.#page.keyboard.press('Control+A');
    await this.#page.keyboard.type(text);
  }

  async #press(button) {
    if (this.#hasMouse) return button.click();
    await this.#focus(button);
    return this.#page.keyboard.press('Enter');
  }

  /** Returns the value for a field of the page. */
  async #value(input) {
    const { user, password, newPassword, answer } = this.#login;
    const [autocomplete, type, label] = await input.evaluate(one => [one.autocomplete, one.type, one.labels[0].textContent]);
    if (autocomplete === 'username') return user;
    if (autocomplete === 'one-time-code') return this.#code();
    if (type !== 'password') return answer;
    if (/new/i.test(label)) return newPassword;
    const isMistaken = this.#isMistaken;
    this.#isMistaken = false;
    return isMistaken ? 'not-the-password' : password;
  }

  async #code() {
    const { code, user } = this.#login;
    const method = code === '/text-message' ? 'POST' : 'GET';
    return this.#onPhone(`${code}?user=${encodeURIComponent(user)}`, method);
  }

  #approve() {
    return this.#onPhone('/approve', 'POST');
  }

  /** Returns what a page of the phone has, as soon as it has something. */
  async #onPhone(path, method) {
    const found = await this.#phone.waitForFunction(async ([url, init]) => (await fetch(url, init)).json(), [path, { method }]);
    return found.jsonValue();
  }
}

const secrets = logins.flatMap(({ password, newPassword, answer, url }) => [password, newPassword, answer, new URL(url).hash.slice(1)]);
await runPages(endpoint, { origin: control, start: 'about:blank', secrets }, async open => {
  await Promise.all(logins.map(async (login, index) => {
    const phone = await open({ url: PHONE });
    const page = await open();
    await page.goto(login.url);
    const person = new Person(login, { page, phone, hasMouse: index % 2 === 0 });
    const kind = await person.signIn().catch(async cause => {
      throw new Error(`${login.site}: ${await page.locator('#view').innerText()}`, { cause });
    });
    assert.equal(kind, login.isSuccess ? 'success' : 'failed', login.site);
  }));
});
