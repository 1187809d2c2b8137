mod agent;
mod control;
