mod auth;
mod browsers;
mod metrics;
mod org;
