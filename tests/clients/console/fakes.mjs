// Responses of routes that need more than one server can offer in a test: pools with waiters, profiles
// with receipts, and registered hosts.
import assert from 'node:assert/strict';
import { url } from './harness.mjs';

const ago = minutes => new Date(Date.now() - minutes * 60_000).toISOString();

export function samplePools() {
  return [
    {
      id: 'pool_01kgc3v7e8r9t0w1x2y3z4a5b6', name: 'checkout', created_at: ago(3000), available_count: 3, acquired_count: 2, waiting_count: 0,
      config_hash: '9f2c5d1e', profile_id: 'prof_01kgc3v7e8r9t0w1x2y3z4a5b6',
      browser_pool_config: { size: 5, fill_rate_per_minute: 25, timeout_seconds: 600, headless: false, viewport: { width: 1280, height: 800, refresh_rate: 25 }, start_url: 'https://shop.example.com' },
    },
    {
      id: 'pool_01kgc3v7e8r9t0w1x2y3z4a5b7', created_at: ago(100), available_count: 0, acquired_count: 0, waiting_count: 1041,
      config_hash: '1f2c5d1e', browser_pool_config: { size: 2, timeout_seconds: 60 },
    },
  ];
}

export function sampleProfiles() {
  return [
    {
      id: 'prof_01kgc3v7e8r9t0w1x2y3z4a5b6', name: 'shop-login', created_at: ago(5000), updated_at: ago(30), last_used_at: ago(12), version: 2, size_bytes: 18_400_000,
      last_save_error: { message: 'the browser did not answer within 30 s', failed_at: ago(2) },
    },
    { id: 'prof_01kgc3v7e8r9t0w1x2y3z4a5b9', name: 'unused', created_at: ago(50), updated_at: ago(50) },
  ];
}

export function sampleVersions() {
  return [
    {
      version: 2, created_at: ago(30), size_bytes: 18_400_000, sha256: '5e88'.repeat(16), chromium_version: '140.0.7339.185', cookies: { '.example.com': 12, 'shop.example.com': 1 }, origins: ['https://shop.example.com'],
      skipped: ['Default/Cache'], is_current: true,
    },
    { version: 1, created_at: ago(900), size_bytes: 17_400_000, cookies: { '.example.com': 1 }, origins: [], skipped: [], is_current: false },
  ];
}

export function sampleHosts() {
  return [
    {
      id: 'host_01kgc3v7e8r9t0w1x2y3z4a5b6', state: 'leased', draining: false, session_id: 'brw_01kgc3v7e8r9t0w1x2y3z4a5b6', generation: 14,
      address: '10.0.0.7:10001', boot_id: 'b', version: '0.1.0', labels: { zone: 'a', rack: '12' }, last_heartbeat_at: ago(0), created_at: ago(9000),
    },
    {
      id: 'host_01kgc3v7e8r9t0w1x2y3z4a5b7', state: 'lost', draining: true, generation: 2,
      address: '10.0.0.8:10001', boot_id: 'c', version: '0.1.0', labels: {}, last_heartbeat_at: ago(3), created_at: ago(9000),
    },
  ];
}

/** Answers all requests below a path of the API by `respond`, which returns a status and a body, and records them. */
export async function intercept(page, name, respond) {
  const requests = [];
  await page.route(target => target.href.startsWith(new URL(name, url).href), async route => {
    const request = route.request();
    const target = new URL(request.url());
    const sent = { method: request.method(), path: target.pathname.slice(1), query: target.search.slice(1), body: request.postDataJSON(), headers: request.headers() };
    requests.push(sent);
    const [status, body] = respond(sent);
    assert.ok(status, `${sent.method} ${sent.path}`);
    await route.fulfill({
      status, contentType: 'application/json', headers: { 'x-request-id': 'req_intercepted', 'x-has-more': 'false', 'x-next-offset': '0' },
      body: body === undefined ? '' : JSON.stringify(body),
    });
  });
  return requests;
}

/** Intercepts the lists and the items of pools, profiles and hosts. */
export async function interceptSamples(page) {
  const [pools, profiles, versions, hosts] = [samplePools(), sampleProfiles(), sampleVersions(), sampleHosts()];
  const respond = (items, isItem) => ({ path }) => [200, isItem(path) ? items[0] : items];
  await intercept(page, 'browser_pools', respond(pools, path => path.includes('/')));
  await intercept(page, 'profiles', sent => (sent.path.endsWith('/versions') ? [200, versions] : respond(profiles, path => path.includes('/'))(sent)));
  await intercept(page, 'fleet/hosts', respond(hosts, () => false));
}
