mod agent_recovers;
mod clients;
mod dev;
mod proxy;
mod sessions;
mod tunnel;
