mod audit_logs;
mod auth;
mod browser_pools;
mod browsers;
mod fleet;
mod metrics;
mod org;
mod profiles;
