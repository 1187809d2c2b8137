mod agent_recovers;
mod clients;
mod dev;
mod hostile_scripts;
mod proxy;
mod secrets;
mod sessions;
mod tunnel;
