mod audit_logs;
mod auth;
mod browsers;
mod console;
mod fleet;
mod metrics;
mod org;
