mod api_keys;
mod projects;
