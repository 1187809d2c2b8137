// Waiting until the document does not change.

const BUSY = '[aria-busy=true], progress:not([value]), [role=progressbar]:not([aria-valuenow])';
const OBSERVED = {
  attributeFilter: ['hidden', 'disabled', 'aria-busy', 'aria-hidden', 'open', 'type'],
  characterData: true,
  childList: true,
  subtree: true,
};
const CHECK_INTERVAL = 20;

const isLoaded = () => readyStateOf(document) === 'complete';
const isBusy = () => findAll(BUSY).some(isDrawn);

// Resolves when the document is loaded and has not changed for `quiet` ms, or after `wait` ms.
function settle(quiet, wait) {
  return new Promise((resolve) => {
    const start = performance.now();
    let lastChange = start;
    const observer = new MutationObserver(() => (lastChange = performance.now()));
    findRoots();
    for (const root of treeRoots) observer.observe(root, OBSERVED);
    const check = () => {
      const now = performance.now();
      const isQuiet = isLoaded() && now - lastChange >= quiet && !isBusy();
      if (!isQuiet && now - start < wait) {
        setTimeout(check, Math.min(CHECK_INTERVAL, wait));
        return;
      }
      observer.disconnect();
      resolve({ loaded: isLoaded(), quiet: isQuiet });
    };
    check();
  });
}
