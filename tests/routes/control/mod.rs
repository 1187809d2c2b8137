mod audit_logs;
mod auth;
mod browsers;
mod fleet;
mod metrics;
mod org;
mod profiles;
