mod dev;

mod agent_recovers;
mod proxy;
mod tunnel;
