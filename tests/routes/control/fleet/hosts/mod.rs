//! `/fleet/hosts`.

mod collection;
mod heartbeat;
mod item;
