
'use strict';
(() => {
  const byId = id => document.getElementById(id);
  const body = document.body;
  const stage = byId('stage'), frame = byId('frame'), screen = byId('screen'), pointer = byId('pointer');
  const keys = byId('keys'), message = byId('message'), reconnect = byId('reconnect'), copy = byId('copy');
  const keyboard = byId('keyboard'), fullScreen = byId('full-screen');
  const context = screen.getContext('2d', { alpha: false, desynchronized: true });

  // The server's limit for one message, in bytes.
  const MAX_MESSAGE = 1 << 20;
  const FIRST_RETRY_DELAY = 250, MAX_RETRY_DELAY = 8000, REQUEST_TIMEOUT = 10_000;
  // How often held input is reported: the server releases the input of a silent viewer.
  const HOLDING_INTERVAL = 200;
  // A finger that rests this long clicks with the right button; one that moves this far scrolls.
  const LONG_PRESS_DELAY = 550, SCROLL_THRESHOLD = 10;
  // How long the local pointer may differ from the browser's before the latter is shown as well.
  const POINTER_DIVERGENCE_DELAY = 400;
  const PIXELS_PER_LINE = 40;
  const BUTTONS = ['left', 'middle', 'right', 'back', 'forward'];
  const IMAGES = { 1: 'image/jpeg', 2: 'image/png' };
  const POINTER_IMAGE = 3;
  const HEADER_LENGTH = 18, LAST_OF_FRAME = 1;
  const MAC = /mac|iphone|ipad/i.test(navigator.userAgentData?.platform ?? navigator.platform ?? '');

  // ---- the connection

  let socket = null, attempt = 0, retryDelay = FIRST_RETRY_DELAY, retryTimer = 0, control = false, frameDrawn = false;
  // The last state message of a browser that is not running.
  let browserDown = null;
  // The close reason of the last connection.
  let closeReason = '';

  function socketUrl() {
    const url = new URL(location.href);
    url.protocol = url.protocol.replace('http', 'ws');
    url.pathname = url.pathname.replace(/\/+$/, '') + '/socket';
    url.hash = '';
    return url;
  }

  function connect() {
    clearTimeout(retryTimer);
    socket?.close();
    const connection = socket = new WebSocket(socketUrl());
    const thisAttempt = ++attempt;
    let connected = false;
    frameDrawn = false;
    browserDown = null;
    connection.binaryType = 'arraybuffer';
    connection.onopen = () => { connected = true; };
    connection.onmessage = ({ data }) => {
      if (connection !== socket) return;
      if (typeof data === 'string') handleMessage(JSON.parse(data));
      else handleImage(connection, data);
    };
    connection.onclose = async ({ code, reason }) => {
      if (connection !== socket) return;
      socket = null;
      remoteCopyPending = false;
      clearInput();
      const rejection = connected ? null : await fetchRejection();
      // Another attempt may have been started meanwhile.
      if (thisAttempt !== attempt) return;
      if (rejection?.final) return show('ended', rejection.message);
      // From 4000 on the reason begins with the name of the code.
      if (connected) closeReason = code >= 4000 ? reason.replace(/^\w+: /, '') : reason;
      const cause = rejection?.message ?? closeReason;
      show('connecting', cause ? `Disconnected: ${cause}. Reconnecting…` : 'Disconnected. Reconnecting…');
      const delay = retryDelay * (0.75 + Math.random() / 2);
      retryDelay = Math.min(retryDelay * 2, MAX_RETRY_DELAY);
      retryTimer = setTimeout(connect, delay);
    };
  }

  // Browsers do not expose why a WebSocket was rejected. The same request without an upgrade does.
  async function fetchRejection() {
    try {
      const url = socketUrl();
      url.protocol = location.protocol;
      const response = await fetch(url, { cache: 'no-store', signal: AbortSignal.timeout(REQUEST_TIMEOUT) });
      // It asks for an upgrade: a WebSocket would be accepted now.
      if (response.status === 400) return null;
      const { message } = await response.json();
      const final = [401, 403, 404, 409, 410].includes(response.status);
      const ended = [404, 410].includes(response.status);
      return { final, message: ended ? 'The browser has ended.' : message };
    } catch {
      return null;
    }
  }

  const send = message => {
    if (socket?.readyState !== WebSocket.OPEN) return false;
    const text = JSON.stringify(message);
    // A UTF-16 unit takes at most three bytes in UTF-8.
    if (text.length * 3 > MAX_MESSAGE && new TextEncoder().encode(text).length > MAX_MESSAGE) {
      notice('The text is too large to be transferred.');
      return false;
    }
    socket.send(text);
    return true;
  };

  function handleMessage(received) {
    switch (received.type) {
      case 'hello':
        control = received.control;
        byId('read-only').hidden = control;
        keyboard.hidden = !(control && navigator.maxTouchPoints > 0);
        keys.tabIndex = control ? 0 : -1;
        if (control && !navigator.maxTouchPoints) keys.focus({ preventScroll: true });
        break;
      case 'browser':
        browserDown = received.state === 'running' ? null : received;
        updateState();
        break;
      case 'pointer':
        remotePointer = { x: received.x, y: received.y, shown: received.shown };
        placePointer();
        break;
      case 'clipboard':
        if (received.text) storeCopied(received.text);
        break;
      case 'nothing_copied':
        remoteCopyPending = false;
        break;
      case 'notice':
        notice(received.message);
        break;
    }
  }

  function updateState() {
    if (browserDown) {
      const texts = { starting: 'The browser is starting…', stopped: 'The browser has stopped.' };
      const reason = browserDown.reason ? ` (${browserDown.reason})` : '';
      show('waiting', (texts[browserDown.state] ?? 'The browser is restarting…') + reason);
    } else if (frameDrawn) {
      show('live', 'Live');
    } else {
      show('connecting', 'Waiting for the first frame…');
    }
  }

  function show(state, text) {
    body.dataset.state = state;
    byId('status').textContent = text;
    message.textContent = text;
    reconnect.hidden = state !== 'ended';
    if (state === 'live') retryDelay = FIRST_RETRY_DELAY;
  }

  let noticeTimer = 0;
  function notice(text) {
    clearTimeout(noticeTimer);
    byId('status').textContent = text;
    noticeTimer = setTimeout(() => { byId('status').textContent = message.textContent; }, 5000);
  }

  // ---- frames

  let drawing = Promise.resolve(), scale = 1;
  let pendingAck = null;

  function handleImage(connection, data) {
    const view = new DataView(data);
    const codec = view.getUint8(0), flags = view.getUint8(1);
    const [x, y, width, height, screenWidth, screenHeight] = [2, 4, 6, 8, 10, 12].map(offset => view.getUint16(offset));
    const sequence = view.getUint32(14);
    const image = new Blob([new Uint8Array(data, HEADER_LENGTH)], { type: IMAGES[codec] ?? 'image/png' });
    // Images are decoded in parallel and drawn in order.
    const decoded = createImageBitmap(image);
    decoded.catch(() => {});
    drawing = drawing.then(async () => {
      const bitmap = await decoded;
      if (connection !== socket) return bitmap.close();
      if (codec === POINTER_IMAGE) return setPointerImage(bitmap, x, y);
      if (screen.width !== screenWidth || screen.height !== screenHeight) {
        screen.width = screenWidth;
        screen.height = screenHeight;
        byId('size').textContent = `${screenWidth} × ${screenHeight}`;
        layout();
      }
      context.drawImage(bitmap, x, y, width, height);
      bitmap.close();
      if (flags & LAST_OF_FRAME) frameComplete(connection, sequence);
    }).catch(error => {
      console.error(error);
      if (connection === socket) connection.close(4000, 'cannot draw an image');
    });
  }

  function frameComplete(connection, sequence) {
    if (!frameDrawn) {
      frameDrawn = true;
      updateState();
    }
    // A hidden page does not acknowledge, and thus gets no more frames.
    pendingAck = () => { if (connection === socket) send({ type: 'seen', sequence }); };
    if (!document.hidden) acknowledge();
  }

  function acknowledge() {
    pendingAck?.();
    pendingAck = null;
  }

  function layout() {
    if (!screen.width) return;
    const { clientWidth, clientHeight } = stage;
    scale = Math.min(clientWidth / screen.width, clientHeight / screen.height);
    frame.style.width = `${Math.floor(screen.width * scale)}px`;
    frame.style.height = `${Math.floor(screen.height * scale)}px`;
    placePointer();
  }

  // ---- the browser's own pointer

  let remotePointer = null, hotspot = { x: 0, y: 0 };
  let localPointer = { over: false, x: 0, y: 0, movedAt: 0 };

  function setPointerImage(bitmap, x, y) {
    hotspot = { x, y };
    pointer.width = bitmap.width;
    pointer.height = bitmap.height;
    pointer.getContext('2d').drawImage(bitmap, 0, 0);
    bitmap.close();
    if (control) screen.style.cursor = `url(${pointer.toDataURL()}) ${x} ${y}, default`;
    placePointer();
  }

  function placePointer() {
    const diverged = remotePointer && Math.hypot(remotePointer.x - localPointer.x, remotePointer.y - localPointer.y) > 2
      && performance.now() - localPointer.movedAt > POINTER_DIVERGENCE_DELAY;
    pointer.hidden = !remotePointer?.shown || !pointer.width || (control && localPointer.over && !diverged);
    if (pointer.hidden) return;
    const left = (remotePointer.x - hotspot.x) * scale, top = (remotePointer.y - hotspot.y) * scale;
    pointer.style.transform = `translate(${left}px, ${top}px) scale(${scale})`;
  }

  // ---- mouse

  let pendingMove = null, pendingWheel = null, flushScheduled = false;
  const heldButtons = new Set();

  function screenPosition(event) {
    const box = screen.getBoundingClientRect();
    const toPixel = (offset, length, pixels) =>
      Math.max(0, Math.min(pixels - 1, Math.floor(offset / length * pixels)));
    return {
      x: toPixel(event.clientX - box.left, box.width, screen.width),
      y: toPixel(event.clientY - box.top, box.height, screen.height),
    };
  }

  // Pointer moves and wheel deltas are sent once per animation frame, everything else immediately
  // and after them.
  function scheduleFlush() {
    if (flushScheduled) return;
    flushScheduled = true;
    requestAnimationFrame(() => { flushScheduled = false; flush(); });
  }

  function addWheel(deltaX, deltaY, position) {
    pendingWheel = {
      delta_x: (pendingWheel?.delta_x ?? 0) + deltaX,
      delta_y: (pendingWheel?.delta_y ?? 0) + deltaY,
      ...position,
    };
    scheduleFlush();
  }

  function flush() {
    if (pendingMove) send({ type: 'pointer_move', ...pendingMove });
    pendingMove = null;
    const wheel = pendingWheel;
    if (wheel && (Math.trunc(wheel.delta_x) || Math.trunc(wheel.delta_y))) {
      const deltas = { delta_x: Math.trunc(wheel.delta_x), delta_y: Math.trunc(wheel.delta_y) };
      send({ type: 'wheel', x: wheel.x, y: wheel.y, ...deltas });
      wheel.delta_x -= deltas.delta_x;
      wheel.delta_y -= deltas.delta_y;
    }
  }

  function sendInOrder(action) {
    flush();
    send(action);
  }

  function trackPointer(event) {
    pendingMove = screenPosition(event);
    localPointer = { over: true, ...pendingMove, movedAt: performance.now() };
    placePointer();
    scheduleFlush();
  }

  function pressButton(name, position) {
    heldButtons.add(name);
    sendInOrder({ type: 'pointer_down', ...position, button: name });
  }

  function releaseButton(name, position) {
    if (heldButtons.delete(name)) sendInOrder({ type: 'pointer_up', ...position, button: name });
  }

  const acceptsInput = () => control && body.dataset.state === 'live';

  screen.addEventListener('mousedown', event => {
    if (!acceptsInput()) return;
    event.preventDefault();
    keys.focus({ preventScroll: true });
    const name = BUTTONS[event.button];
    if (name) pressButton(name, screenPosition(event));
  });
  addEventListener('mouseup', event => {
    const name = BUTTONS[event.button];
    if (!heldButtons.has(name)) return;
    event.preventDefault();
    releaseButton(name, screenPosition(event));
  });
  addEventListener('mousemove', event => {
    if (acceptsInput() && (event.target === screen || heldButtons.size)) trackPointer(event);
  });
  screen.addEventListener('mouseleave', () => { localPointer.over = heldButtons.size > 0; placePointer(); });
  for (const type of ['contextmenu', 'auxclick', 'dragstart', 'selectstart']) {
    screen.addEventListener(type, event => event.preventDefault());
  }
  screen.addEventListener('wheel', event => {
    if (!acceptsInput()) return;
    event.preventDefault();
    const unit = [1, PIXELS_PER_LINE, screen.height][event.deltaMode] ?? 1;
    // Local browsers swap the axes while Shift is held. Undo that: the remote browser sees the key
    // and does the same.
    const [x, y] = event.shiftKey && !event.deltaY ? [0, event.deltaX] : [event.deltaX, event.deltaY];
    addWheel(x * unit, y * unit, screenPosition(event));
  }, { passive: false });

  // ---- touch: a tap clicks, a finger that moves scrolls, one that rests clicks with the right button

  let touch = null;
  const click = (name, position) => { pressButton(name, position); releaseButton(name, position); };

  screen.addEventListener('touchstart', event => {
    if (!acceptsInput()) return;
    event.preventDefault();
    clearTimeout(touch?.timer);
    const finger = event.touches[0];
    const timer = setTimeout(() => {
      click('right', touch.start);
      touch.done = true;
    }, LONG_PRESS_DELAY);
    touch = { start: screenPosition(finger), x: finger.clientX, y: finger.clientY, timer, scrolls: false, done: false };
  }, { passive: false });
  screen.addEventListener('touchmove', event => {
    if (!touch) return;
    event.preventDefault();
    const finger = event.touches[0];
    const dx = touch.x - finger.clientX, dy = touch.y - finger.clientY;
    if (!touch.scrolls && Math.hypot(dx, dy) < SCROLL_THRESHOLD) return;
    clearTimeout(touch.timer);
    touch.scrolls = true;
    touch.x = finger.clientX;
    touch.y = finger.clientY;
    addWheel(dx / scale, dy / scale, touch.start);
  }, { passive: false });
  const endTouch = event => {
    if (!touch) return;
    event.preventDefault();
    clearTimeout(touch.timer);
    if (event.type === 'touchend' && !touch.scrolls && !touch.done) click('left', touch.start);
    if (!event.touches.length) touch = null;
    else touch.done = true;
  };
  screen.addEventListener('touchend', endTouch, { passive: false });
  screen.addEventListener('touchcancel', endTouch, { passive: false });

  // ---- keyboard

  const MODIFIERS = ['Control', 'Shift', 'Alt', 'Meta', 'AltGraph'];
  // Whether a dead key or an input method is composing a character, which arrives as text.
  let composing = false;
  // The reported name of each held key, by its code.
  const heldKeys = new Map();

  const isShortcut = event => event.ctrlKey || (MAC && event.metaKey);
  const isText = key => [...key].length === 1;
  const isForeignLetter = key => /^\p{L}$/u.test(key) && !/\p{Script=Latin}/u.test(key);

  // Returns the name of the key that the remote browser should receive.
  function keyName(event) {
    const { key } = event;
    if (MAC && key === 'Meta') return 'Control';
    const isCommand = isShortcut(event) || event.metaKey || (event.altKey && !MAC);
    // Shortcuts use Latin letters, also on keyboards of other scripts.
    const letter = isCommand && !event.getModifierState('AltGraph') && isForeignLetter(key)
      && /^Key([A-Z])$/.exec(event.code)?.[1];
    if (!letter) return key;
    return event.shiftKey ? letter : letter.toLowerCase();
  }

  function pressKey(event) {
    const code = event.code || event.key;
    heldKeys.set(code, keyName(event));
    sendInOrder({ type: 'key_down', code, key: keyName(event) });
  }

  function releaseKey(code) {
    if (heldKeys.delete(code)) sendInOrder({ type: 'key_up', code });
  }

  function releaseModifiers(names) {
    for (const [code, name] of [...heldKeys]) if (names.includes(name)) releaseKey(code);
  }

  const tapKey = key => {
    sendInOrder({ type: 'key_down', code: key, key });
    sendInOrder({ type: 'key_up', code: key });
  };

  setInterval(() => { if (heldButtons.size || heldKeys.size) send({ type: 'holding' }); }, HOLDING_INTERVAL);

  keys.addEventListener('keydown', event => {
    if (!acceptsInput()) return;
    const { key } = event;
    if (key === 'Dead') composing = true;
    // Key code 229 belongs to an input method, also in events after the composition.
    const isInputMethod = event.isComposing || event.keyCode === 229;
    if (composing || isInputMethod || ['Dead', 'Process', 'Unidentified'].includes(key)) {
      if (key !== 'Dead' && !MODIFIERS.includes(key)) composing = false;
      return;
    }
    const shortcut = isShortcut(event);
    const letter = keyName(event).toLowerCase();
    if (shortcut && !event.altKey && letter === 'v') {
      // The `paste` event follows.
      event.stopPropagation();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    // Reported as a separate key, on Windows after a Control that was not pressed.
    if (key === 'AltGraph') return releaseModifiers(['Control', 'Alt']);
    if (isText(key) && (event.getModifierState('AltGraph') || (MAC && event.altKey && !shortcut))) {
      releaseModifiers(['Alt', 'AltGraph', 'Control']);
      return sendInOrder({ type: 'text', text: key });
    }
    // The remote browser repeats held keys by itself.
    if (event.repeat && heldKeys.has(event.code || key)) return;
    // Sent before the key, so that the server watches the clipboard in time.
    if (shortcut && !event.altKey && !event.repeat && (letter === 'c' || letter === 'x')) {
      remoteCopyPending = true;
      sendInOrder({ type: 'copy' });
    }
    // macOS sends no keyup for keys released while Meta is held.
    if (MAC && event.metaKey && !MODIFIERS.includes(key)) tapKey(keyName(event));
    else pressKey(event);
  });
  keys.addEventListener('keyup', event => {
    if (!control) return;
    if (!event.isComposing) event.preventDefault();
    releaseKey(event.code || event.key);
    // It may omit the keyup of modifiers as well, so everything is released together with Meta.
    if (MAC && event.key === 'Meta') releaseAll();
  });

  // On-screen keyboards report a backspace only if the field is not empty.
  const FILLER = '\u200b';
  const resetField = () => {
    keys.value = FILLER;
    keys.setSelectionRange(1, 1);
  };
  resetField();
  const KEYS_OF_INPUT_TYPES = { deleteContentBackward: 'Backspace', deleteContentForward: 'Delete', insertLineBreak: 'Enter', insertParagraph: 'Enter' };
  keys.addEventListener('beforeinput', event => {
    const key = KEYS_OF_INPUT_TYPES[event.inputType];
    if (!key || event.isComposing) return;
    event.preventDefault();
    if (acceptsInput()) tapKey(key);
  });
  keys.addEventListener('input', event => {
    if (event.isComposing) return;
    const text = keys.value.replaceAll(FILLER, '');
    resetField();
    composing = false;
    if (text && acceptsInput()) sendInOrder({ type: 'text', text });
  });
  keys.addEventListener('compositionend', event => {
    resetField();
    composing = false;
    if (event.data && acceptsInput()) sendInOrder({ type: 'text', text: event.data });
  });

  function releaseAll() {
    flush();
    if (heldButtons.size || heldKeys.size) send({ type: 'release' });
    clearInput();
  }

  function clearInput() {
    heldButtons.clear();
    heldKeys.clear();
    pendingMove = pendingWheel = null;
    composing = false;
  }

  addEventListener('blur', () => {
    releaseAll();
    // Another program may be used to copy something.
    remoteCopyPending = false;
  });
  keys.addEventListener('blur', releaseAll);
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) releaseAll();
    else acknowledge();
  });

  // ---- clipboard

  // A remote text to be stored at a click.
  let copied = null;
  // Whether the latest copy was a remote one that is not on the local clipboard yet.
  let remoteCopyPending = false;

  document.addEventListener('paste', event => {
    if (!acceptsInput()) return;
    event.preventDefault();
    const text = remoteCopyPending ? '' : event.clipboardData?.getData('text/plain');
    // Without a text, the remote clipboard is pasted.
    sendInOrder({ type: 'paste', ...(text && { text }) });
  });

  async function storeCopied(text) {
    try {
      await navigator.clipboard.writeText(text);
      copy.hidden = true;
      remoteCopyPending = false;
    } catch {
      // Only permitted at a click, or not at all on a page without TLS.
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
      resetField();
    }
    copied = null;
    remoteCopyPending = false;
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
    // Forwards the local browser's shortcuts as well, except a long press of Escape.
    if (document.fullscreenElement) navigator.keyboard?.lock?.().catch(() => {});
    else navigator.keyboard?.unlock?.();
    keys.focus({ preventScroll: true });
  });
  reconnect.addEventListener('click', () => {
    retryDelay = FIRST_RETRY_DELAY;
    show('connecting', 'Connecting…');
    connect();
  });
  addEventListener('online', () => { if (!socket && body.dataset.state !== 'ended') connect(); });
  new ResizeObserver(layout).observe(stage);
  connect();
})();
