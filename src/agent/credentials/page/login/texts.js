// The texts that a user reads, in blocks such as paragraphs.

const MAX_TEXT_NODES = 4000;
// The most texts that are looked at, those that no user reads included.
const MAX_VISITED = 20000;
const MAX_LABEL = 120;
const MAX_HINT = 200;
const MAX_MESSAGE = 300;
// The longest text that is searched for a message or an address.
const MAX_SEARCHED = 500;
// The texts that a user does not read, or has written.
const UNREAD =
  'script, style, noscript, template, textarea, select, option, title, svg *, ' +
  '[contenteditable], [contenteditable] *';

// Returns a text without line breaks and control characters, and of at most `max` characters.
function clip(text, max) {
  const plain = text.replace(/[\p{Cc}\u202a-\u202e\u2066-\u2069\s]+/gu, ' ').trim();
  const characters = [...plain];
  return characters.length > max ? `${characters.slice(0, max - 1).join('')}…` : plain;
}

// Returns the nearest element around a text that starts a line.
function blockOf(element) {
  let node = element;
  while (/^(inline|contents)$/.test(getComputedStyle(node).display) && composedParent(node)) {
    node = composedParent(node);
  }
  return node;
}

// Returns the blocks that a user reads, without the texts of links, buttons and other controls.
function collectBlocks() {
  const blocks = new Map();
  const known = new Map();
  // Returns the block for the texts of an element, or null if they are not read.
  const blockFor = (element) => {
    if (!known.has(element)) {
      const isRead = !matchesAny(element, UNREAD) && isVisible(element) && !controlAround(element);
      known.set(element, isRead ? blockOf(element) : null);
    }
    return known.get(element);
  };
  let count = 0;
  let visited = 0;
  for (const root of treeRoots) {
    const walker = Document.prototype.createTreeWalker.call(document, root, NodeFilter.SHOW_TEXT);
    while (count < MAX_TEXT_NODES && visited < MAX_VISITED && walker.nextNode()) {
      const node = walker.currentNode;
      visited += 1;
      const text = node.data.trim();
      const parent = parentElement(node) ?? hostOf(node);
      const block = text && parent ? blockFor(parent) : null;
      if (!block) continue;
      count += 1;
      blocks.set(block, `${blocks.get(block) ?? ''} ${text}`);
    }
  }
  return [...blocks].map(([element, text]) => ({ element, text: text.trim() }));
}

const joined = (blocks) => blocks.map(({ text }) => text).join('\n');
const lengthOf = (blocks) => blocks.reduce((sum, { text }) => sum + text.length, 0);

const MASKS = '*•●∙·×＊…';
const MASKED_PHONE = new RegExp(
  `(?:\\+?\\d{0,4}[\\s().-]*)?(?:[${MASKS}xX][\\s().-]*){2,}\\d{1,4}(?!\\d)`,
  'u',
);
// "ending in 12", in the languages of the words.
const ENDING = new RegExp(
  '(?:ending (?:in|with)|ends (?:in|with)|endet (?:auf|mit)|endend auf|se terminant par|' +
    'terminad[oa] en|termina (?:en|em|con|in|com)|eindigt op|eindigend op|kończący się na|末尾が?|' +
    '尾号为?|尾號為?|оканчивается на|заканчивается на|sonu|ينتهي ب|끝자리|끝나는)\\D{0,6}(\\d{2,4})',
  'iu',
);

// Returns the email address or the phone number of a text. An address without a mask gets one.
function maskedTarget(whole) {
  const text = whole.slice(0, MAX_SEARCHED);
  const parts = text.split(/[\s,;:!?()<>"'“”„«»。，、]+/u);
  const address = parts.find((part) => /^[^@]+@[^@]+$/u.test(part));
  if (address) return maskAddress(address.replace(/\.$/u, ''));
  const phone = MASKED_PHONE.exec(text);
  if (phone) return clip(phone[0], MAX_TARGET);
  const ending = ENDING.exec(text);
  return ending ? `•••${ending[1]}` : null;
}

const MAX_TARGET = 80;

function maskAddress(address) {
  const isMasked = [...MASKS].some((mask) => address.includes(mask)) || address.includes('..');
  const masked = isMasked ? address : address.replace(/^(.).*@/u, '$1•••@');
  return clip(masked, MAX_TARGET);
}

const isAddress = (target) => target?.includes('@') ?? false;
