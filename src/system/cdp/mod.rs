//! Chromium's DevTools endpoint, and its command-line flags.
//!
//! | file | job |
//! |---|---|
//! | `devtools` | the HTTP endpoints (`/json/…`) |
//! | `connection` | the agent's own commands, typed, over one WebSocket |
//! | `tab` | a session with one tab, over a `connection` |
//! | `socket` | a WebSocket that passes messages unread, for script workers |
//! | `policy` | the methods that clients, scripts and viewers may call |
//! | `long_events` | a `socket` without events that are longer than a message may be |
//! | `chromium_flags` | the option `--chromium-flag` |

pub mod chromium_flags;
pub mod connection;
pub mod devtools;
mod long_events;
pub mod policy;
pub mod socket;
pub mod tab;
