//! The process routes of the agent.

mod attach;
mod cgroups;
mod exec;
mod kill;
mod resize;
mod spawn;
mod status;
mod stdin;
mod stdout;
