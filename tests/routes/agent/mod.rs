mod automation;
mod cdp;
mod chromium;
mod display;
mod fs;
mod health;
mod json;
mod logs;
