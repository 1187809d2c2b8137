// A banner that asks for consent to cookies.

const MAX_BANNER_TEXT = 4000;
// The most buttons whose banner is looked for, and the most elements between a button and it.
const MAX_ANSWERS = 20;
const MAX_BANNER_DEPTH = 40;
const KNOWN_BANNERS =
  '#onetrust-banner-sdk, #CybotCookiebotDialog, .qc-cmp2-container, #didomi-host, ' +
  '.fc-consent-root, #truste-consent-track, [id^=sp_message_container], #usercentrics-root, ' +
  '[id*=cookie i], [class*=cookie i], [id*=consent i], [class*=consent i], [aria-label*=cookie i]';

// Returns the banner with its button to reject, or else the one to accept, or null.
function findBanner(survey) {
  const controls = survey.controls.filter(
    (control) => !control.isBox && isConsentAnswer(control) && control.isShown,
  );
  const containers = new Map();
  for (const control of controls.slice(0, MAX_ANSWERS)) {
    const container = bannerAround(control.element, survey);
    if (!container) continue;
    if (!containers.has(container)) containers.set(container, []);
    containers.get(container).push(control);
  }
  const banners = [...containers].map(([container, answers]) => {
    const rejecting = answers.find((control) => control.means('reject'));
    return { container, control: rejecting ?? answers[0], rejects: rejecting !== undefined };
  });
  return banners.find(({ rejects }) => rejects) ?? banners[0] ?? null;
}

const isConsentAnswer = (control) =>
  control.label.length <= MAX_ANSWER_LABEL && control.means('reject', 'accept');

const MAX_ANSWER_LABEL = 60;

// Returns the banner that a button belongs to.
function bannerAround(element, { matcher, allBlocks }) {
  const passwords = matcher.fields.filter((field) => field.isDrawn && isPassword(field));
  const hasLogin = (node) => passwords.some((field) => isWithin(field.element, node));
  let node = composedParent(element);
  for (let depth = 0; node && depth < MAX_BANNER_DEPTH; depth += 1, node = composedParent(node)) {
    if (hasLogin(node)) return null;
    const blocks = allBlocks.filter((block) => isWithin(block.element, node));
    if (lengthOf(blocks) > MAX_BANNER_TEXT) return null;
    const isAboutConsent = means(toWords(joined(blocks)), 'consent');
    if (isAboutConsent && isBannerLike(node, matcher)) return node;
  }
  return null;
}

// Whether an element is in front of the page, or is a page of its own.
function isBannerLike(element, { fields }) {
  const { position, zIndex } = getComputedStyle(element);
  const isInFront = /fixed|sticky/.test(position) || (position === 'absolute' && zIndex > 0);
  if (isInFront || matchesAny(element, `${DIALOG}, ${KNOWN_BANNERS}`)) return true;
  return element === bodyOf(document) && !fields.some((field) => field.isDrawn);
}
