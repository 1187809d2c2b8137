mod api_keys;
mod limits;
mod projects;
