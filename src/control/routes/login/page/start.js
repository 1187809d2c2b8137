'use strict';
// Runs before the rest of the page is loaded: the code leaves the address, and with it the history,
// at once. It waits in the sessionStorage of this tab until it is exchanged.
{
  const takeCode = () => {
    const code = new URLSearchParams(location.hash.slice(1)).get('code');
    if (location.hash) history.replaceState(null, '', location.pathname + location.search);
    if (!code) return;
    try {
      sessionStorage.setItem(`code:${location.pathname.split('/').pop()}`, code);
    } catch {
      // A browser without storage: the code does not survive a reload.
      window.handoffCode = code;
    }
  };
  takeCode();
  // A new link for the same connection in the same tab changes only the fragment.
  addEventListener('hashchange', () => {
    takeCode();
    location.reload();
  });
}
