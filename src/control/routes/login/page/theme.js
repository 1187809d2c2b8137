// The appearance that the operator has set. Text keeps its contrast with every color.

/** The least contrast of text with its background. */
const TEXT_CONTRAST = 4.5;
/** The least contrast of the edge of a button with the card. */
const EDGE_CONTRAST = 3;
/** The colors of a card, as in the style sheet. */
const SURFACES = { light: '#ffffff', dark: '#161a21' };
const TEXTS = { light: '#000000', dark: '#ffffff' };

const parse = color => [1, 3, 5].map(start => parseInt(color.slice(start, start + 2), 16));
const format = channels => `#${channels.map(channel => Math.round(channel).toString(16).padStart(2, '0')).join('')}`;

/** Returns the relative luminance of a color, as WCAG defines it. */
function luminance(color) {
  const [red, green, blue] = parse(color).map(channel => {
    const value = channel / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

export function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

/** Returns black or white, which is more legible on the color. One of them always is legible. */
export function textOn(background) {
  return contrast(background, '#ffffff') >= contrast(background, '#000000') ? '#ffffff' : '#000000';
}

/** Returns the color, mixed with as much of `target` as gives it the least contrast with the background. */
export function legible(color, background, target, least = TEXT_CONTRAST) {
  const [from, to] = [parse(color), parse(target)];
  for (let percent = 0; percent < 100; percent += 4) {
    const mixed = format(from.map((channel, index) => channel + (to[index] - channel) * percent / 100));
    if (contrast(mixed, background) >= least) return mixed;
  }
  return target;
}

/** Returns the values of the style sheet's properties in one color scheme. */
export function properties({ accent, background }, scheme) {
  const values = {};
  if (accent) {
    values['--primary'] = accent[scheme];
    values['--on-primary'] = textOn(accent[scheme]);
    values['--primary-edge'] = legible(accent[scheme], SURFACES[scheme], TEXTS[scheme], EDGE_CONTRAST);
    values['--accent'] = legible(accent[scheme], SURFACES[scheme], TEXTS[scheme]);
  }
  if (background) {
    values['--page'] = background[scheme];
    values['--on-page'] = textOn(background[scheme]);
    values['--focus-on-page'] = textOn(background[scheme]);
  }
  return values;
}

/** Loads the theme, and applies it now and when the color scheme changes. */
export async function loadTheme() {
  const response = await fetch(new URL('theme', location.href), { cache: 'no-cache', credentials: 'omit' });
  if (!response.ok) throw new Error(`status ${response.status}`);
  const theme = await response.json();
  const isDark = matchMedia('(prefers-color-scheme: dark)');
  const apply = () => {
    const { style } = document.documentElement;
    for (const [name, value] of Object.entries(properties(theme, isDark.matches ? 'dark' : 'light'))) {
      style.setProperty(name, value);
    }
  };
  isDark.addEventListener('change', apply);
  apply();
  return theme;
}
