// The web site of the demo: a login form, a list that loads late, a second page, and a download.
import { createServer } from 'node:http';
import { once } from 'node:events';

const user = { name: 'ada', password: 'lovelace' };
const perPage = 4;
const orders = [
  ['A-1001', 'Anchor chain', 420], ['A-1002', 'Bilge pump', 189], ['A-1003', 'Compass', 75], ['A-1004', 'Deck lamp', 64],
  ['A-1005', 'Echo sounder', 310], ['A-1006', 'Fender', 22], ['A-1007', 'Galley stove', 540], ['A-1008', 'Hawser', 98],
].map(([id, item, price]) => ({ id, item, price }));

const layout = (title, body) => `<!doctype html><html lang="en"><meta charset="utf-8"><title>${title}</title><style>
  body { font: 16px/1.5 sans-serif; margin: 4rem auto; max-width: 40rem; color: #123 }
  h1 { border-bottom: 3px solid #2a7 } label { display: block; margin: .5rem 0 } input, button { font: inherit; padding: .3rem .6rem }
  li { padding: .3rem 0; border-bottom: 1px solid #dde } .price { float: right } nav { margin-top: 1rem } a { margin-right: 1rem }
  </style><h1>${title}</h1>${body}</html>`;

const login = layout('Harbour supplies', `<form method="post" action="/login">
  <label>Name <input name="name" autofocus></label>
  <label>Password <input name="password" type="password"></label>
  <button>Log in</button></form>`);

const list = page => layout(`Orders, page ${page}`, `<p id="status">Loading…</p><ul></ul>
  <nav>${page === 1 ? '<a href="/orders?page=2">Next page</a>' : '<a href="/orders?page=1">Previous page</a>'}
  <a href="/orders.csv">Download as CSV</a></nav>
  <script>
    fetch('/orders.json?page=${page}').then(r => r.json()).then(orders => {
      for (const { id, item, price } of orders) {
        const line = document.createElement('li');
        line.dataset.id = id;
        line.innerHTML = '<span class="item"></span><span class="price"></span>';
        line.querySelector('.item').textContent = item;
        line.querySelector('.price').textContent = price;
        document.querySelector('ul').append(line);
      }
      document.querySelector('#status').textContent = orders.length + ' orders';
    });
  </script>`);

async function handle(request, response) {
  const url = new URL(request.url, 'http://site');
  const send = (status, type, body, headers = {}) => response.writeHead(status, { 'content-type': type, ...headers }).end(body);
  const redirect = (location, headers) => send(303, 'text/plain', '', { location, ...headers });
  const loggedIn = /(^|; )session=open/.test(request.headers.cookie ?? '');

  if (url.pathname === '/') return send(200, 'text/html', login);
  if (url.pathname === '/login' && request.method === 'POST') {
    let form = '';
    for await (const chunk of request) form += chunk;
    const credentials = new URLSearchParams(form);
    const isValid = credentials.get('name') === user.name && credentials.get('password') === user.password;
    return isValid ? redirect('/orders?page=1', { 'set-cookie': 'session=open; HttpOnly; Path=/' }) : redirect('/');
  }
  if (!loggedIn) return redirect('/');
  const page = url.searchParams.get('page') === '2' ? 2 : 1;
  if (url.pathname === '/orders') return send(200, 'text/html', list(page));
  if (url.pathname === '/orders.json') {
    const part = JSON.stringify(orders.slice((page - 1) * perPage, page * perPage));
    return setTimeout(() => send(200, 'application/json', part), 300);
  }
  if (url.pathname === '/orders.csv') {
    const csv = ['id,item,price', ...orders.map(o => `${o.id},${o.item},${o.price}`), ''].join('\n');
    return send(200, 'text/csv', csv, { 'content-disposition': 'attachment; filename="orders.csv"' });
  }
  send(404, 'text/plain', 'not found');
}

/** Serves the site on a free port of the loopback interface. */
export async function serveSite() {
  const server = createServer((request, response) => handle(request, response).catch(error => response.destroy(error)));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
