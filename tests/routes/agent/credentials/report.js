// Loaded by every page: `report()` returns the fields of the page and of the frames in it.

const closedRoots = new Map();
const attachShadow = Element.prototype.attachShadow;
Element.prototype.attachShadow = function (init) {
  const root = attachShadow.call(this, init);
  if (init.mode === 'closed') closedRoots.set(this, root);
  return root;
};

const shadowRootOf = (element) => {
  const { get } = Object.getOwnPropertyDescriptor(Element.prototype, 'shadowRoot');
  return get.call(element) ?? closedRoots.get(element) ?? null;
};

function ownFields(root = document) {
  const found = [];
  const query = root instanceof Document ? Document.prototype.querySelectorAll : root.querySelectorAll;
  for (const element of query.call(root, '*')) {
    if (element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement) {
      found.push({
        right: element.dataset.right ?? null,
        value: element.value,
        masked: getComputedStyle(element).webkitTextSecurity === 'disc',
      });
    }
    const shadow = shadowRootOf(element);
    if (shadow) found.push(...ownFields(shadow));
  }
  return found;
}

async function report() {
  const frames = Array.from({ length: self.length }, (_, index) => self[index]);
  const reports = frames.map(
    (frame) =>
      new Promise((resolve) => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = ({ data }) => resolve(data);
        frame.postMessage('report', '*', [port2]);
      }),
  );
  return [...ownFields(), ...(await Promise.all(reports)).flat()];
}

addEventListener('message', async ({ data, ports }) => {
  if (data === 'report') ports[0].postMessage(await report());
});
