// The buttons that log in through an identity provider.

// The providers by their names, and the addresses at which they log in.
const PROVIDERS = [
  ['google', / google /, /^accounts\.google\.\w+$/],
  [
    'microsoft',
    / (microsoft|azure ad|entra|office 365|outlook|hotmail|windows live) /,
    /^login\.(microsoftonline|live|windows)\.com$/,
  ],
  ['apple', / apple /, /^(appleid|idmsa)\.apple\.com$/],
  ['github', / git ?hub /, /^github\.com$/],
  ['gitlab', / git ?lab /, /^gitlab\.com$/],
  ['bitbucket', / bitbucket /, /^bitbucket\.org$/],
  ['atlassian', / atlassian /, /^(auth|id)\.atlassian\.com$/],
  ['facebook', / (facebook|meta) /, /^([\w-]+\.)*facebook\.com$/],
  ['linkedin', / linked ?in /, /^([\w-]+\.)*linkedin\.com$/],
  ['x', / (twitter|x) /, /^((api|www)\.)?(twitter|x)\.com$/],
  ['amazon', / amazon /, /^([\w-]+\.)*amazon\.[\w.]+$/],
  ['okta', / okta /, /^([\w-]+\.)*(okta|oktapreview)\.com$/],
  ['auth0', / auth ?0 /, /^([\w-]+\.)*auth0\.com$/],
  ['onelogin', / one ?login /, /^([\w-]+\.)*onelogin\.com$/],
  ['ping', / ping ?(identity|one|id) /, /^([\w-]+\.)*ping(one|identity)\.\w+$/],
  ['slack', / slack /, /^([\w-]+\.)*slack\.com$/],
  ['discord', / discord /, /^discord\.com$/],
  ['twitch', / twitch /, /^id\.twitch\.tv$/],
  ['paypal', / pay ?pal /, /^([\w-]+\.)*paypal\.com$/],
  ['yahoo', / yahoo /, /^([\w-]+\.)*yahoo\.\w+$/],
  ['salesforce', / salesforce /, /^([\w-]+\.)*salesforce\.com$/],
  ['steam', / steam /, /^steamcommunity\.com$/],
  ['line', / line /, /^access\.line\.me$/],
  ['kakao', / (kakao|카카오) ?/u, /^([\w-]+\.)*kakao\.com$/],
  ['naver', / (naver|네이버) ?/u, /^nid\.naver\.com$/],
  ['wechat', / (we ?chat|weixin) |微信/, /^open\.weixin\.qq\.com$/],
  ['qq', / qq /, /^graph\.qq\.com$/],
  ['weibo', / weibo |微博/, /^([\w-]+\.)*weibo\.com$/],
  ['yandex', / (yandex|яндекс) /, /^oauth\.yandex\.\w+$/],
  ['vk', / (vk|vkontakte|вконтакте) /, /^(oauth|id)\.vk\.(com|ru)$/],
];
// The addresses of pages of a login at a provider.
const AUTHORIZATION = /auth|login|log-in|signin|sign-in|saml|sso|connect|openid|idp/i;
// A button about something else than a login.
const NO_LOGIN = new RegExp(
  ' (play|store|follow|share|pay|download|maps|watch|like|folgen|teilen|suivre|partager|seguir|' +
    'compartir|segui|condividi|volgen|delen) ',
);

// Names that are also other words, which need a verb beside them.
const COMMON_NAMES = new Set(['x', 'line']);

// Returns the choices of a provider.
function providerChoices(survey, submit) {
  const choices = [];
  for (const control of survey.stepControls) {
    const isOther = control.isBox || control.element === submit?.element;
    const provider = isOther ? null : providerOf(control, survey);
    if (provider) choices.push({ control, kind: 'sso_provider', provider });
  }
  return choices;
}

// Separates Latin words from those of other scripts.
const separated = (text) =>
  text.replace(/([a-z\d])(?=[^\x00-\x7f])|([^\x00-\x7f])(?=[a-z\d])/gu, '$& ');

function providerOf(control, survey) {
  const { label } = control;
  const text = separated(control.text);
  const isOther = NO_LOGIN.test(text) || control.means('otherMethod', 'byApp');
  if (label.length > MAX_ACTION || isOther) return null;
  if (control.means('registration') && !control.means('login')) return null;
  const verbs = ['login', 'next', 'connect'];
  const named = PROVIDERS.find(([, name]) => name.test(text));
  if (named) {
    const rest = text.replace(named[1], ' ').trim();
    const isNameAlone = rest === '' && survey.isAboutLogin && !COMMON_NAMES.has(named[0]);
    const isNamed = control.means(...verbs) || isNameAlone;
    return isNamed && leadsToLogin(control) ? named[0] : null;
  }
  const host = control.targetHost;
  const known = host ? PROVIDERS.find(([, , pattern]) => pattern.test(host)) : null;
  if (known && control.means(...verbs) && leadsToLogin(control)) return known[0];
  return control.means('singleSignOn') && survey.isAboutLogin ? 'sso' : null;
}

// Whether the link of a control leads to a login, and not to a profile of the site. A control
// without a link may.
function leadsToLogin(control) {
  const { element, targetHost } = control;
  if (!(element instanceof HTMLAnchorElement) || targetHost === null) return true;
  return targetHost === location.hostname || AUTHORIZATION.test(pathOfTarget(control));
}
