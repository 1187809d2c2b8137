//! The logins of auth connections.

mod sites;
mod sites_in_chromium;
mod visitor;
