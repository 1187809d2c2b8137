
'use strict';
const video = document.querySelector('video');
const speed = document.getElementById('speed');
const error = document.getElementById('error');
if (video) {
  const applySpeed = () => { video.playbackRate = Number(speed.value); };
  speed.addEventListener('change', applySpeed);
  video.addEventListener('loadedmetadata', applySpeed);
  video.addEventListener('error', () => {
    video.hidden = true;
    error.textContent = 'This replay cannot be played. The link may have expired: request a new one.';
    error.hidden = false;
  });
} else {
  speed.disabled = true;
}
const started = document.querySelector('time');
started.textContent = new Date(started.dateTime).toLocaleString();
