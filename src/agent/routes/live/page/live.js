
'use strict';
(() => {
  const byId = id => document.getElementById(id);
  const body = document.body;
  const stage = byId('stage'), frame = byId('frame'), screen = byId('screen'), pointer = byId('pointer');
  const keys = byId('keys'), told = byId('told'), again = byId('again'), copy = byId('copy');
  const keyboard = byId('keyboard'), fullScreen = byId('full-screen');
  const context = screen.getContext('2d', { alpha: false, desynchronized: true });

  // What the server takes in one message.
  const MAX_MESSAGE = 1 << 20;
  const FIRST_PAUSE = 250, LONGEST_PAUSE = 8000, LONGEST_REQUEST = 10_000;
  // How often it is said that what is held is held still: the server lets go of what it does not hear of.
  const HOLDING = 200;
  // A finger that rests so long clicks with the right button; one that moves so far scrolls.
  const LONG_PRESS = 550, SLOP = 10;
  // How long a pointer of ours may differ from the browser's before that one is shown as well.
  const ESTRANGED = 400;
  const PIXELS_PER_LINE = 40;
  const BUTTONS = ['left', 'middle', 'right', 'back', 'forward'];
  const IMAGES = { 1: 'image/jpeg', 2: 'image/png' };
  const POINTER_IMAGE = 3;
  const HEADER = 18, LAST_OF_FRAME = 1;
  const MAC = /mac|iphone|ipad/i.test(navigator.userAgentData?.platform ?? navigator.platform ?? '');

  // ---- the connection

  let socket = null, attempt = 0, pause = FIRST_PAUSE, retry = 0, control = false, drawn = false;
  // Why it is not live, where the browser is the reason.
  let waiting = null;
  // Why the last connection ended.
  let parting = '';

  function address() {
    const url = new URL(location.href);
    url.protocol = url.protocol.replace('http', 'ws');
    url.pathname = url.pathname.replace(/\/+$/, '') + '/socket';
    url.hash = '';
    return url;
  }

  function connect() {
    clearTimeout(retry);
    socket?.close();
    const mine = socket = new WebSocket(address());
    const latest = ++attempt;
    let opened = false;
    drawn = false;
    waiting = null;
    mine.binaryType = 'arraybuffer';
    mine.onopen = () => { opened = true; };
    mine.onmessage = ({ data }) => {
      if (mine !== socket) return;
      if (typeof data === 'string') hear(JSON.parse(data));
      else see(mine, data);
    };
    mine.onclose = async ({ reason }) => {
      if (mine !== socket) return;
      socket = null;
      theirs = false;
      forget();
      const refusal = opened ? null : await refused();
      // Meanwhile it may have been tried again.
      if (latest !== attempt) return;
      if (refusal?.final) return show('ended', refusal.message);
      if (opened) parting = reason;
      const why = refusal?.message ?? parting;
      show('connecting', why ? `Disconnected: ${why}. Reconnecting…` : 'Disconnected. Reconnecting…');
      const wait = pause * (0.75 + Math.random() / 2);
      pause = Math.min(pause * 2, LONGEST_PAUSE);
      retry = setTimeout(connect, wait);
    };
  }

  // A refused WebSocket does not say why, the same request as a plain one does.
  async function refused() {
    try {
      const url = address();
      url.protocol = location.protocol;
      const answer = await fetch(url, { cache: 'no-store', signal: AbortSignal.timeout(LONGEST_REQUEST) });
      // It asks for a WebSocket: there is a place now.
      if (answer.status === 400) return null;
      const { message } = await answer.json();
      const final = [401, 403, 404, 409, 410].includes(answer.status);
      return { final, message: answer.status === 404 ? 'The browser has ended.' : message };
    } catch {
      return null;
    }
  }

  const send = message => {
    if (socket?.readyState !== WebSocket.OPEN) return false;
    const text = JSON.stringify(message);
    // In UTF-8 a character takes three bytes at most for each of its units.
    if (text.length * 3 > MAX_MESSAGE && new TextEncoder().encode(text).length > MAX_MESSAGE) {
      notice('The text is too large to be passed on.');
      return false;
    }
    socket.send(text);
    return true;
  };

  function hear(message) {
    switch (message.type) {
      case 'hello':
        control = message.control;
        byId('read-only').hidden = control;
        keyboard.hidden = !(control && navigator.maxTouchPoints > 0);
        keys.tabIndex = control ? 0 : -1;
        if (control && !navigator.maxTouchPoints) keys.focus({ preventScroll: true });
        break;
      case 'browser':
        waiting = message.state === 'running' ? null : message;
        refresh();
        break;
      case 'pointer':
        remote = { x: message.x, y: message.y, shown: message.shown };
        placePointer();
        break;
      case 'clipboard':
        if (message.text) take(message.text);
        break;
      case 'nothing_copied':
        theirs = false;
        break;
      case 'notice':
        notice(message.message);
        break;
    }
  }

  function refresh() {
    if (waiting) {
      const doing = { starting: 'The browser is starting…', stopped: 'The browser has stopped.' };
      const why = waiting.reason ? ` (${waiting.reason})` : '';
      show('waiting', (doing[waiting.state] ?? 'The browser is being restarted…') + why);
    } else if (drawn) {
      show('live', 'Live');
    } else {
      show('connecting', 'Waiting for the picture…');
    }
  }

  function show(state, text) {
    body.dataset.state = state;
    byId('status').textContent = text;
    told.textContent = text;
    again.hidden = state !== 'ended';
    if (state === 'live') pause = FIRST_PAUSE;
  }

  let noticed = 0;
  function notice(text) {
    clearTimeout(noticed);
    byId('status').textContent = text;
    noticed = setTimeout(() => { byId('status').textContent = told.textContent; }, 5000);
  }

  // ---- the picture

  let drawing = Promise.resolve(), scale = 1;
  let unseen = null;

  function see(mine, data) {
    const view = new DataView(data);
    const codec = view.getUint8(0), flags = view.getUint8(1);
    const [x, y, width, height, screenWidth, screenHeight] = [2, 4, 6, 8, 10, 12].map(at => view.getUint16(at));
    const sequence = view.getUint32(14);
    const image = new Blob([new Uint8Array(data, HEADER)], { type: IMAGES[codec] ?? 'image/png' });
    // All are decoded at once, and drawn in their order.
    const decoded = createImageBitmap(image);
    decoded.catch(() => {});
    drawing = drawing.then(async () => {
      const bitmap = await decoded;
      if (mine !== socket) return bitmap.close();
      if (codec === POINTER_IMAGE) return pointAs(bitmap, x, y);
      if (screen.width !== screenWidth || screen.height !== screenHeight) {
        screen.width = screenWidth;
        screen.height = screenHeight;
        byId('size').textContent = `${screenWidth} × ${screenHeight}`;
        layOut();
      }
      context.drawImage(bitmap, x, y, width, height);
      bitmap.close();
      if (flags & LAST_OF_FRAME) seen(mine, sequence);
    }).catch(error => {
      console.error(error);
      if (mine === socket) mine.close(4000, 'a picture could not be drawn');
    });
  }

  function seen(mine, sequence) {
    if (!drawn) {
      drawn = true;
      refresh();
    }
    // Whoever does not look gets no more pictures.
    unseen = () => { if (mine === socket) send({ type: 'seen', sequence }); };
    if (!document.hidden) confirmSeen();
  }

  function confirmSeen() {
    unseen?.();
    unseen = null;
  }

  function layOut() {
    if (!screen.width) return;
    const { clientWidth, clientHeight } = stage;
    scale = Math.min(clientWidth / screen.width, clientHeight / screen.height);
    frame.style.width = `${Math.floor(screen.width * scale)}px`;
    frame.style.height = `${Math.floor(screen.height * scale)}px`;
    placePointer();
  }

  // ---- the browser's own pointer

  let remote = null, hot = { x: 0, y: 0 };
  let local = { over: false, x: 0, y: 0, at: 0 };

  function pointAs(bitmap, x, y) {
    hot = { x, y };
    pointer.width = bitmap.width;
    pointer.height = bitmap.height;
    pointer.getContext('2d').drawImage(bitmap, 0, 0);
    bitmap.close();
    if (control) screen.style.cursor = `url(${pointer.toDataURL()}) ${x} ${y}, default`;
    placePointer();
  }

  function placePointer() {
    const estranged = remote && Math.hypot(remote.x - local.x, remote.y - local.y) > 2
      && performance.now() - local.at > ESTRANGED;
    pointer.hidden = !remote?.shown || !pointer.width || (control && local.over && !estranged);
    if (pointer.hidden) return;
    const left = (remote.x - hot.x) * scale, top = (remote.y - hot.y) * scale;
    pointer.style.transform = `translate(${left}px, ${top}px) scale(${scale})`;
  }

  // ---- mouse

  let move = null, wheel = null, frameAsked = false;
  const held = new Set();

  function onScreen(event) {
    const box = screen.getBoundingClientRect();
    const at = (offset, length, pixels) =>
      Math.max(0, Math.min(pixels - 1, Math.floor(offset / length * pixels)));
    return {
      x: at(event.clientX - box.left, box.width, screen.width),
      y: at(event.clientY - box.top, box.height, screen.height),
    };
  }

  // Moves and turns of the wheel go once per frame, all else at once and after them.
  function soon() {
    if (frameAsked) return;
    frameAsked = true;
    requestAnimationFrame(() => { frameAsked = false; flush(); });
  }

  function flush() {
    if (move) send({ type: 'pointer_move', ...move });
    move = null;
    if (wheel && (Math.trunc(wheel.delta_x) || Math.trunc(wheel.delta_y))) {
      const whole = { delta_x: Math.trunc(wheel.delta_x), delta_y: Math.trunc(wheel.delta_y) };
      send({ type: 'wheel', x: wheel.x, y: wheel.y, ...whole });
      wheel.delta_x -= whole.delta_x;
      wheel.delta_y -= whole.delta_y;
    }
  }

  function act(message) {
    flush();
    send(message);
  }

  function follow(event) {
    move = onScreen(event);
    local = { over: true, ...move, at: performance.now() };
    placePointer();
    soon();
  }

  function press(name, at) {
    held.add(name);
    act({ type: 'pointer_down', ...at, button: name });
  }

  function release(name, at) {
    if (held.delete(name)) act({ type: 'pointer_up', ...at, button: name });
  }

  const active = () => control && body.dataset.state === 'live';

  screen.addEventListener('mousedown', event => {
    if (!active()) return;
    event.preventDefault();
    keys.focus({ preventScroll: true });
    const name = BUTTONS[event.button];
    if (name) press(name, onScreen(event));
  });
  addEventListener('mouseup', event => {
    const name = BUTTONS[event.button];
    if (!held.has(name)) return;
    event.preventDefault();
    release(name, onScreen(event));
  });
  addEventListener('mousemove', event => {
    if (active() && (event.target === screen || held.size)) follow(event);
  });
  screen.addEventListener('mouseleave', () => { local.over = held.size > 0; placePointer(); });
  for (const type of ['contextmenu', 'auxclick', 'dragstart', 'selectstart']) {
    screen.addEventListener(type, event => event.preventDefault());
  }
  screen.addEventListener('wheel', event => {
    if (!active()) return;
    event.preventDefault();
    const unit = [1, PIXELS_PER_LINE, screen.height][event.deltaMode] ?? 1;
    // What shift makes of a wheel is for the browser there to decide: it sees the key.
    const [x, y] = event.shiftKey && !event.deltaY ? [0, event.deltaX] : [event.deltaX, event.deltaY];
    wheel = { delta_x: (wheel?.delta_x ?? 0) + x * unit, delta_y: (wheel?.delta_y ?? 0) + y * unit, ...onScreen(event) };
    soon();
  }, { passive: false });

  // ---- touch: a tap clicks, a finger that moves scrolls, one that rests clicks with the right button

  let touch = null;
  const click = (name, at) => { press(name, at); release(name, at); };

  screen.addEventListener('touchstart', event => {
    if (!active()) return;
    event.preventDefault();
    clearTimeout(touch?.timer);
    const finger = event.touches[0];
    const timer = setTimeout(() => {
      click('right', touch.start);
      touch.done = true;
    }, LONG_PRESS);
    touch = { start: onScreen(finger), x: finger.clientX, y: finger.clientY, timer, scrolls: false, done: false };
  }, { passive: false });
  screen.addEventListener('touchmove', event => {
    if (!touch) return;
    event.preventDefault();
    const finger = event.touches[0];
    const dx = touch.x - finger.clientX, dy = touch.y - finger.clientY;
    if (!touch.scrolls && Math.hypot(dx, dy) < SLOP) return;
    clearTimeout(touch.timer);
    touch.scrolls = true;
    touch.x = finger.clientX;
    touch.y = finger.clientY;
    wheel = {
      delta_x: (wheel?.delta_x ?? 0) + dx / scale,
      delta_y: (wheel?.delta_y ?? 0) + dy / scale,
      ...touch.start,
    };
    soon();
  }, { passive: false });
  const lift = event => {
    if (!touch) return;
    event.preventDefault();
    clearTimeout(touch.timer);
    if (event.type === 'touchend' && !touch.scrolls && !touch.done) click('left', touch.start);
    if (!event.touches.length) touch = null;
    else touch.done = true;
  };
  screen.addEventListener('touchend', lift, { passive: false });
  screen.addEventListener('touchcancel', lift, { passive: false });

  // ---- keyboard

  const MODIFIERS = ['Control', 'Shift', 'Alt', 'Meta', 'AltGraph'];
  // A letter that waits for another, or comes from an input method, comes as text.
  let composed = false;
  const down = new Map();

  const isShortcut = event => event.ctrlKey || (MAC && event.metaKey);
  const isText = key => [...key].length === 1;
  const isForeignLetter = key => /^\p{L}$/u.test(key) && !/\p{Script=Latin}/u.test(key);

  // What the key stands for there.
  function nameOf(event) {
    const { key } = event;
    if (MAC && key === 'Meta') return 'Control';
    const isCommand = isShortcut(event) || event.metaKey || (event.altKey && !MAC);
    // Commands go by Latin letters, on keyboards of other scripts too.
    const letter = isCommand && !event.getModifierState('AltGraph') && isForeignLetter(key)
      && /^Key([A-Z])$/.exec(event.code)?.[1];
    if (!letter) return key;
    return event.shiftKey ? letter : letter.toLowerCase();
  }

  function pressKey(event) {
    const code = event.code || event.key;
    down.set(code, nameOf(event));
    act({ type: 'key_down', code, key: nameOf(event) });
  }

  function releaseKey(code) {
    if (down.delete(code)) act({ type: 'key_up', code });
  }

  function releaseModifiers(names) {
    for (const [code, name] of [...down]) if (names.includes(name)) releaseKey(code);
  }

  const tap = key => {
    act({ type: 'key_down', code: key, key });
    act({ type: 'key_up', code: key });
  };

  setInterval(() => { if (held.size || down.size) send({ type: 'holding' }); }, HOLDING);

  keys.addEventListener('keydown', event => {
    if (!active()) return;
    const { key } = event;
    if (key === 'Dead') composed = true;
    // 229 is the input method's, also where it is told after its end.
    const isInput = event.isComposing || event.keyCode === 229;
    if (composed || isInput || ['Dead', 'Process', 'Unidentified'].includes(key)) {
      if (key !== 'Dead' && !MODIFIERS.includes(key)) composed = false;
      return;
    }
    const shortcut = isShortcut(event);
    const letter = nameOf(event).toLowerCase();
    if (shortcut && !event.altKey && letter === 'v') {
      // The `paste` event follows.
      event.stopPropagation();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    // It is told as a key of its own, after a Control that nobody pressed.
    if (key === 'AltGraph') return releaseModifiers(['Control', 'Alt']);
    if (isText(key) && (event.getModifierState('AltGraph') || (MAC && event.altKey && !shortcut))) {
      releaseModifiers(['Alt', 'AltGraph', 'Control']);
      return act({ type: 'text', text: key });
    }
    // A key that is held is repeated there.
    if (event.repeat && down.has(event.code || key)) return;
    // Before the key, so that nothing of what it does is missed.
    if (shortcut && !event.altKey && !event.repeat && (letter === 'c' || letter === 'x')) {
      theirs = true;
      act({ type: 'copy' });
    }
    // That a key is released while Meta is held goes untold there.
    if (MAC && event.metaKey && !MODIFIERS.includes(key)) tap(nameOf(event));
    else pressKey(event);
  });
  keys.addEventListener('keyup', event => {
    if (!control) return;
    if (!event.isComposing) event.preventDefault();
    releaseKey(event.code || event.key);
    // Of modifiers it may go untold as well.
    if (MAC && event.key === 'Meta') releaseAll();
  });

  // An input field that is never empty tells of the backspace of an on-screen keyboard too.
  const FILL = '\u200b';
  const refill = () => {
    keys.value = FILL;
    keys.setSelectionRange(1, 1);
  };
  refill();
  const TAPS = { deleteContentBackward: 'Backspace', deleteContentForward: 'Delete', insertLineBreak: 'Enter', insertParagraph: 'Enter' };
  keys.addEventListener('beforeinput', event => {
    const key = TAPS[event.inputType];
    if (!key || event.isComposing) return;
    event.preventDefault();
    if (active()) tap(key);
  });
  keys.addEventListener('input', event => {
    if (event.isComposing) return;
    const text = keys.value.replaceAll(FILL, '');
    refill();
    composed = false;
    if (text && active()) act({ type: 'text', text });
  });
  keys.addEventListener('compositionend', event => {
    refill();
    composed = false;
    if (event.data && active()) act({ type: 'text', text: event.data });
  });

  function releaseAll() {
    flush();
    if (held.size || down.size) send({ type: 'release' });
    forget();
  }

  function forget() {
    held.clear();
    down.clear();
    move = wheel = null;
    composed = false;
  }

  addEventListener('blur', () => {
    releaseAll();
    // Something else may be copied elsewhere.
    theirs = false;
  });
  keys.addEventListener('blur', releaseAll);
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) releaseAll();
    else confirmSeen();
  });

  // ---- clipboard

  let copied = null;
  // What was copied last was copied there, and has not come to this computer's clipboard.
  let theirs = false;

  document.addEventListener('paste', event => {
    if (!active()) return;
    event.preventDefault();
    const text = theirs ? '' : event.clipboardData?.getData('text/plain');
    // Without text of ours it pastes what was copied there.
    act({ type: 'paste', ...(text && { text }) });
  });

  async function take(text) {
    try {
      await navigator.clipboard.writeText(text);
      copy.hidden = true;
      theirs = false;
    } catch {
      // Not permitted but at a click, or not on a page without TLS.
      copied = text;
      copy.hidden = false;
    }
  }

  copy.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(copied);
    } catch {
      keys.value = copied;
      keys.select();
      document.execCommand('copy');
      refill();
    }
    copied = null;
    theirs = false;
    copy.hidden = true;
    keys.focus({ preventScroll: true });
  });

  // ---- the page

  keyboard.addEventListener('click', () => {
    const on = keyboard.getAttribute('aria-pressed') !== 'true';
    keyboard.setAttribute('aria-pressed', on);
    keys.inputMode = on ? 'text' : 'none';
    keys.blur();
    if (on) keys.focus({ preventScroll: true });
  });
  fullScreen.addEventListener('click', () => {
    document.documentElement.requestFullscreen?.().catch(() => notice('Full screen is not permitted here.'));
  });
  document.addEventListener('fullscreenchange', () => {
    // Then even the shortcuts of this browser go there, but a long Escape.
    if (document.fullscreenElement) navigator.keyboard?.lock?.().catch(() => {});
    else navigator.keyboard?.unlock?.();
    keys.focus({ preventScroll: true });
  });
  again.addEventListener('click', () => {
    pause = FIRST_PAUSE;
    show('connecting', 'Connecting…');
    connect();
  });
  addEventListener('online', () => { if (!socket && body.dataset.state !== 'ended') connect(); });
  new ResizeObserver(layOut).observe(stage);
  connect();
})();
