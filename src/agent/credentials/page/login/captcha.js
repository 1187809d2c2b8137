// A captcha that a user sees.

// The addresses of the frames of known captchas, and their elements.
const CAPTCHAS = [
  // reCAPTCHA
  [/^https?:\/\/(www\.)?(google\.com|recaptcha\.net)\/recaptcha\//, '.g-recaptcha'],
  // hCaptcha
  [/^https?:\/\/([\w-]+\.)*hcaptcha\.com\//, '.h-captcha'],
  // Turnstile
  [/^https?:\/\/challenges\.cloudflare\.com\//, '.cf-turnstile'],
  // Arkose
  [/^https?:\/\/([\w-]+\.)*(arkoselabs|funcaptcha)\.com\//, '#FunCaptcha, #arkose'],
  // DataDome
  [/^https?:\/\/([\w-]+\.)*captcha-delivery\.com\//, '#ddChallengeBody'],
  // PerimeterX
  [/^https?:\/\/([\w-]+\.)*(px-cdn|px-cloud|perimeterx)\.net\//, '#px-captcha'],
  // GeeTest
  [/^https?:\/\/([\w-]+\.)*geetest\.com\//, '.geetest_captcha, .geetest_holder'],
  // AWS WAF
  [/^https?:\/\/([\w-]+\.)*awswaf\.com\//, 'awswaf-captcha, #captcha-container'],
  // Friendly Captcha
  [/^https?:\/\/([\w-]+\.)*frcapi\.com\//, '.frc-captcha'],
];
// The fields that get the token of a captcha that was solved.
const SOLUTIONS = [
  '[name=g-recaptcha-response]', '[name=h-captcha-response]', '[name=cf-turnstile-response]',
  '[name=frc-captcha-solution]',
];
// The smallest sides of a widget. Smaller ones, and badges, work without the user.
const MIN_WIDGET = { width: 60, height: 40 };
const MAX_CHALLENGE_TEXT = 800;

const isCaptchaUrl = (url) => CAPTCHAS.some(([pattern]) => pattern.test(url));

const isInvisible = (url) => /[?&#]size=invisible/.test(url);

// Whether this frame is the widget of a captcha: also one in a closed shadow tree.
function isOwnCaptcha() {
  const isLarge = innerWidth >= MIN_WIDGET.width && innerHeight >= MIN_WIDGET.height;
  return isCaptchaUrl(location.href) && isLarge && !isInvisible(location.href);
}

const hasCaptcha = (survey) => hasKnownWidget() || hasOwnWidget(survey) || isChallenge(survey);

// Whether a field has the token of a captcha that was solved.
function isSolved() {
  const isToken = ({ value }) => typeof value === 'string' && value.length > 10;
  return findAll(SOLUTIONS.join(', ')).some(isToken);
}

// Whether the widget of a known captcha is drawn.
function hasKnownWidget() {
  const isKnown = ({ src }) => isCaptchaUrl(src) && !isInvisible(src);
  if (findAll('iframe').some((frame) => isKnown(frame) && isWidget(frame))) return true;
  const isChecked = (element) =>
    !matchesAny(element, 'button, input, [data-size=invisible]') && isWidget(element);
  return CAPTCHAS.some(([, selector]) => findAll(selector).some(isChecked));
}

function isWidget(element) {
  const { width, height } = element.getBoundingClientRect();
  const isLarge = width >= MIN_WIDGET.width && height >= MIN_WIDGET.height;
  return isLarge && isDrawn(element) && !closestOf(element, '.grecaptcha-badge');
}

// Whether the step has a box, a button or a field with the words of a captcha, without an answer.
function hasOwnWidget({ stepControls, matcher, scope }) {
  const isLink = ({ element }) => element instanceof HTMLAnchorElement;
  const isOpen = (control) => !isLink(control) && !control.isChecked && control.means('captcha');
  if (stepControls.some(isOpen)) return true;
  return matcher.fields.some(
    ({ element, text, isDrawn: drawn }) =>
      drawn && element.value === '' && scope && isWithin(element, scope) && means(text, 'captcha'),
  );
}

// Whether the page is only a challenge.
function isChallenge(survey) {
  const isShort = lengthOf(survey.allBlocks) <= MAX_CHALLENGE_TEXT;
  const isAlone = isShort && survey.loginGroups.length === 0 && findAll('article').length === 0;
  return isAlone && survey.says('captchaChallenge');
}
