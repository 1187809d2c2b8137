mod auth;
mod browsers;
mod org;
