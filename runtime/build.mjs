// Builds dist/playwright.js: Playwright and its environment as one script for the engine of berth-script.
import fs from 'node:fs';
import path from 'node:path';
import esbuild from 'esbuild';
import { lineLimit, sliceCoreBundle } from './bundle/slice.mjs';
import { pageScripts, patches, replacements } from './bundle/replacements.mjs';

const here = import.meta.dirname;
const dist = path.join(here, 'dist');
const upstream = path.join(here, 'node_modules/playwright-core');

// The replacements are written for one release; a new release needs a review.
const pinned = JSON.parse(fs.readFileSync(path.join(here, 'package.json'), 'utf8')).devDependencies['playwright-core'];
const installed = JSON.parse(fs.readFileSync(path.join(upstream, 'package.json'), 'utf8')).version;
if (installed !== pinned) throw new Error(`playwright-core ${installed} is installed, but ${pinned} is required: run npm ci`);

fs.rmSync(dist, { recursive: true, force: true });
fs.mkdirSync(dist, { recursive: true });

const sliced = path.join(dist, 'core.mjs');
fs.writeFileSync(sliced, sliceCoreBundle(path.join(upstream, 'lib/coreBundle.js'), { replacements, patches, pageScripts, version: installed }));

// Modules of Node: from npm if a faithful one exists, else from src/node. Those do what Playwright needs and reject the rest by
// name.
const npmBuiltins = { path: 'path-browserify/index.js', events: 'events/events.js' };
const ownBuiltins = new Map(fs.readdirSync(path.join(here, 'src/node')).map((file) => [path.parse(file).name, path.join(here, 'src/node', file)]));
const refused = ['http2', 'net', 'tls', 'dns', 'child_process', 'readline', 'zlib', 'vm', 'inspector'];

const nodeModules = {
  name: 'node-modules',
  setup(build) {
    build.onResolve({ filter: /^(node:)?[a-z0-9_]+(\/promises)?$/ }, ({ path: name, importer }) => {
      name = name.replace(/^node:/, '').replace(/\/promises$/, '');
      // `src/node/buffer.ts` wraps the npm package of the same name.
      if (name === 'buffer' && importer.startsWith(path.join(here, 'src/node'))) return { path: path.join(here, 'node_modules/buffer/index.js') };
      if (ownBuiltins.has(name)) return { path: name, namespace: 'builtin' };
      if (name in npmBuiltins) return { path: path.join(here, 'node_modules', npmBuiltins[name]) };
      if (refused.includes(name)) return { path: name, namespace: 'refused' };
      return undefined;
    });
    // Playwright imports them as CommonJS modules, so the default export is the complete module.
    build.onLoad({ filter: /.*/, namespace: 'builtin' }, ({ path: name }) => ({
      contents: `const all = require(${JSON.stringify(ownBuiltins.get(name))}); module.exports = typeof all === 'function' ? all : { ...all };`,
      resolveDir: here,
    }));
    build.onLoad({ filter: /.*/, namespace: 'refused' }, ({ path: name }) => ({
      contents: `const { refusedModule } = require('./src/refuse.ts'); module.exports = refusedModule(${JSON.stringify(name)});`,
      resolveDir: here,
    }));
    build.onResolve({ filter: /^\.\/utilsBundle$/ }, () => ({ path: path.join(here, 'src/utils_bundle.ts') }));
    // Used only for browsers that Playwright launches.
    build.onResolve({ filter: /^(\.\/bootstrap|electron\/.*|chromium-bidi\/.*)$/ }, ({ path: name }) => ({ path: name, namespace: 'empty' }));
    build.onLoad({ filter: /.*/, namespace: 'empty' }, () => ({ contents: 'module.exports = {};' }));
  },
};

const result = await esbuild.build({
  entryPoints: [path.join(here, 'src/main.ts')],
  outfile: path.join(dist, 'playwright.js'),
  bundle: true,
  format: 'iife',
  platform: 'neutral',
  target: 'es2022',
  mainFields: ['main'],
  plugins: [nodeModules],
  banner: { js: '"use strict";' },
  define: { __dirname: '"/playwright-core/lib"', 'process.env.NODE_ENV': '"production"' },
  treeShaking: true,
  legalComments: 'none',
  // Names are kept, since Playwright derives error prefixes from them.
  minifyWhitespace: true,
  minifySyntax: true,
  lineLimit,
  metafile: true,
  logLevel: 'warning',
});
fs.rmSync(sliced);

for (const notice of ['LICENSE', 'NOTICE', 'ThirdPartyNotices.txt']) {
  fs.copyFileSync(path.join(upstream, notice), path.join(dist, `playwright-${notice}`));
}
const size = Object.values(result.metafile.outputs)[0].bytes;
console.log(`dist/playwright.js: playwright-core ${installed}, ${(size / 1024 / 1024).toFixed(1)} MiB`);
