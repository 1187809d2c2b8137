mod automation;
mod cdp;
mod chromium;
mod display;
mod health;
mod json;
