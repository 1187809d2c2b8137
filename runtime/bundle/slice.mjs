// playwright-core's coreBundle.js is an esbuild bundle of lazily initialised CommonJS-like modules. This converts it into one
// ES module for tree shaking, with some of its modules replaced. Every step fails if it does not find its target.
import fs from 'node:fs';
import vm from 'node:vm';
import esbuild from 'esbuild';

const moduleHeading = /^\/\/ ((?:packages|node_modules|[\w.\-@]+)\/[^\n]*\.(?:ts|tsx|js|cjs|mjs|json))$/gm;
const initialiser = /^var (init_\w+) = __esm\(\{\n {2}("[^"]+")\(\) \{/m;

// Very long lines slow the load in QuickJS down by a factor of five.
export const lineLimit = 160;

export function sliceCoreBundle(file, { replacements, patches, pageScripts, version }) {
  const parts = splitModules(withoutExports(fs.readFileSync(file, 'utf8')));
  const missing = new Set([...Object.keys(replacements), ...Object.keys(patches), ...pageScripts]);
  const out = [];
  for (const [name, source] of parts) {
    missing.delete(name);
    let code = source;
    if (patches[name]) code = patch(name, code, patches[name]);
    if (name in replacements) code = replaceBody(name, code, replacements[name].replaceAll('%VERSION%', version));
    if (pageScripts.includes(name)) code = minifyPageScript(name, code);
    out.push(shakable(name, code));
  }
  if (missing.size) throw new Error(`coreBundle.js lacks the modules: ${[...missing].join(', ')}`);
  return `${out.join('')}\n${entry}`;
}

/** Removes the exports of the bundle, which would keep everything alive. `entry` is the only export. */
function withoutExports(source) {
  const exportsAt = source.indexOf('\n__export(coreBundle_exports, {');
  const end = source.lastIndexOf('var coreBundle_exports', exportsAt + 5);
  if (exportsAt < 0 || end < 0) throw new Error('coreBundle.js does not export as expected');
  return source.slice(0, end).replace(/^"use strict";\n/, '');
}

function splitModules(source) {
  const parts = [];
  let start = 0;
  let name = '<prelude>';
  for (const match of source.matchAll(moduleHeading)) {
    parts.push([name, source.slice(start, match.index)]);
    start = match.index;
    name = match[1];
  }
  parts.push([name, source.slice(start)]);
  if (parts.length < 300) throw new Error(`coreBundle.js has ${parts.length} modules, expected at least 300`);
  return parts;
}

function patch(name, code, edits) {
  for (const [from, to] of edits) {
    if (code.split(from).length !== 2) throw new Error(`the patch of ${name} does not apply exactly once: ${from}`);
    code = code.replace(from, () => to);
  }
  return code;
}

/** Gives the initialiser of a module another body. The declarations stay, since other modules refer to them. */
function replaceBody(name, code, body) {
  const match = initialiser.exec(code);
  const end = match ? code.indexOf('\n});\n', match.index) : -1;
  if (end < 0) throw new Error(`${name} has no initialiser to replace`);
  const [, init, path] = match;
  return `${code.slice(0, match.index)}var ${init} = __esm({\n  ${path}() {\n${body}\n  }\n});\n${code.slice(end + 5)}`;
}

/** Minifies the script for pages that a module has as a string. Its errors keep their names, which messages contain. */
function minifyPageScript(name, code) {
  const literals = [...code.matchAll(/^ {4}\w+ = ('.*');$/gm)].map(([, literal]) => literal);
  if (literals.length !== 1) throw new Error(`${name} has ${literals.length} strings, expected one`);
  const script = vm.runInNewContext(literals[0]);
  const named = script.replace(/(\w+) = class (?:\w+ )?extends Error \{/g, '$& name = "$1";');
  if (/extends Error \{(?! name = )/.test(named)) throw new Error(`${name} has an error without a name`);
  // In a function, names at the top level are shortened as well. No directive of the script takes effect there.
  const { code: minified } = esbuild.transformSync(`(module => {;${named}\n})(module);`, { minify: true, lineLimit });
  return code.replace(literals[0], () => JSON.stringify(minified));
}

/** Marks functions without side effects as pure, so that unused modules are removed. */
function shakable(name, code) {
  code = code
    .replace(/^var (init_\w+) = __esm\(/gm, 'var $1 = /* @__PURE__ */ __esm(')
    .replace(/^var (require_\w+) = __commonJS\(/gm, 'var $1 = /* @__PURE__ */ __commonJS(')
    .replace(/^var (\w+_exports) = \{\};\n__export\(\1, \{/gm, 'var $1 = /* @__PURE__ */ __exports({');
  if (name === '<prelude>') code += '\nvar __exports = (all) => { const target = {}; __export(target, all); return target; };\n';
  // A direct eval could use every name, and would keep all modules.
  if (name.includes('/tools/')) code = code.replace(/(?<![\w$.'"\\])eval\(/g, '(0, eval)(');
  return code;
}

const entry = `export function bootPlaywright() {
  init_stackTrace(); init_androidServerImpl(); init_browserServerImpl(); init_server(); init_connection(); init_package();
  return createInProcessPlaywright();
}
`;
