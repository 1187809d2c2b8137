mod api_keys;
mod credential_providers;
mod limits;
mod projects;
mod webhooks;
