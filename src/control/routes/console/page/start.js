'use strict';
// Runs before the first paint, so that the theme and the right page are shown from the start.
const { dataset } = document.documentElement;
const theme = localStorage.getItem('theme');
if (theme === 'light' || theme === 'dark') dataset.theme = theme;
if (sessionStorage.getItem('key')) dataset.signedIn = '';
