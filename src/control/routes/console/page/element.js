// Elements. Nothing is parsed as HTML: values of the API become text nodes or attributes.

const SVG = 'http://www.w3.org/2000/svg';

/** Returns an element. Properties that start with `on` are listeners; absent children are skipped. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter(child => child !== undefined && child !== null && child !== false));
  return element;
}

export function icon(name) {
  const [svg, use] = ['svg', 'use'].map(tag => document.createElementNS(SVG, tag));
  svg.setAttribute('class', `icon icon-${name}`);
  svg.setAttribute('aria-hidden', 'true');
  use.setAttribute('href', `#icon-${name}`);
  svg.append(use);
  return svg;
}
