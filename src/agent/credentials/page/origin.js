// The origins that may have the values. The agent computes the hosts, from the public suffix list.

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;

function isPermittedHost(hostname, policy) {
  return policy.hosts.some(
    ({ host, subdomains }) => hostname === host || (subdomains && hostname.endsWith(`.${host}`)),
  );
}

function isPermittedUrl(text, policy) {
  let url;
  try {
    url = new URL(text);
  } catch {
    return false;
  }
  const isSecure =
    url.protocol === 'https:' ||
    (url.protocol === 'http:' && (policy.allowHttp || LOOPBACK.test(url.hostname)));
  return isSecure && isPermittedHost(url.hostname, policy);
}

// Whether the values may be written into this frame now. Its origin, that of its address and those of
// all frames around it have to be permitted. The origin of a sandboxed frame is `null`.
function isPermittedFrame(policy) {
  const origins = [self.origin, location.origin, ...location.ancestorOrigins];
  return origins.every((origin) => isPermittedUrl(origin, policy));
}

// Whether a form sends its values to a permitted origin, or to a script of its page.
function hasPermittedTarget(form, buttons, policy) {
  if (!form) return true;
  const targets = [formAction(form)];
  for (const button of buttons) {
    if (button.hasAttribute('formaction')) targets.push(button.formAction);
  }
  return targets.every(
    (target) => target.startsWith('javascript:') || isPermittedUrl(target, policy),
  );
}
