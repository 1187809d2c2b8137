mod agent_recovers;
mod clients;
mod dev;
mod hostile_scripts;
mod proxy;
mod sessions;
mod tunnel;
