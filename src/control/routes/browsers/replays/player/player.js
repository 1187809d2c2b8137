
'use strict';
const video = document.querySelector('video');
const speed = document.getElementById('speed');
const trouble = document.getElementById('trouble');
if (video) {
  const pace = () => { video.playbackRate = Number(speed.value); };
  speed.addEventListener('change', pace);
  video.addEventListener('loadedmetadata', pace);
  video.addEventListener('error', () => {
    video.hidden = true;
    trouble.textContent = 'This replay cannot be played. The link may have run out; ask for a new one.';
    trouble.hidden = false;
  });
} else {
  speed.disabled = true;
}
const started = document.querySelector('time');
started.textContent = new Date(started.dateTime).toLocaleString();
