//! Behaviour across routes, processes and restarts.

mod agent_recovers;
mod chromium_user;
mod clients;
mod computer;
mod connections;
mod dev;
mod downloads;
mod environment;
mod files;
mod hostile_scripts;
mod live_view;
mod logs;
mod memory;
mod openapi;
mod processes;
mod proxy;
mod readme;
mod replay_storage;
mod replays;
mod request_bodies;
mod script_policy;
mod script_user;
mod script_worker;
mod secrets;
mod sessions;
mod tunnel;
