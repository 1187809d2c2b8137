// The time that remains for the person, without haste: in minutes, and in steps of ten seconds at the end.

import { serverTime } from './api.js';
import { durationText, t } from './language.js';

const STEP = 10;
/** The remaining seconds at which screen readers are informed. */
const ANNOUNCED = [300, 120, 60, 30];

/** Shows the time to a deadline in an element, and passes the important moments to `announce`. */
export class Countdown {
  #element;
  #announce;
  #deadline = null;
  #timer = 0;
  #next = [];

  constructor(element, announce) {
    this.#element = element;
    this.#announce = announce;
  }

  /** Counts down to a time in milliseconds, or shows nothing. */
  set deadline(deadline) {
    if (deadline !== this.#deadline) {
      this.#deadline = deadline;
      this.#next = ANNOUNCED.filter(seconds => seconds < this.#remaining());
    }
    clearInterval(this.#timer);
    if (deadline !== null) this.#timer = setInterval(() => this.#update(), 1000);
    this.#update();
  }

  #remaining() {
    return this.#deadline === null ? 0 : (this.#deadline - serverTime()) / 1000;
  }

  #text() {
    const seconds = this.#remaining();
    if (seconds <= 0) return t('time_over');
    const rounded = seconds >= 120 ? seconds : Math.ceil(seconds / STEP) * STEP;
    return t('time_left', { time: durationText(rounded) });
  }

  #update() {
    this.#element.hidden = this.#deadline === null;
    if (this.#deadline === null) return;
    const text = this.#text();
    const label = this.#element.querySelector('span');
    if (label.textContent !== text) label.textContent = text;
    if (this.#next.length > 0 && this.#remaining() <= this.#next[0]) {
      this.#next = this.#next.filter(seconds => seconds < this.#remaining());
      this.#announce(text);
    }
  }
}
