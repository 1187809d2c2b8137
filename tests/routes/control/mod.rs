mod audit_logs;
mod auth;
mod browsers;
mod metrics;
mod org;
