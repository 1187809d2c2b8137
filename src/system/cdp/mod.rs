//! Chromium's DevTools endpoint, and its command-line flags.
//!
//! | file | job |
//! |---|---|
//! | `devtools` | the HTTP endpoints (`/json/…`) |
//! | `connection` | the agent's own commands, typed, over one WebSocket |
//! | `tab` | a session with one tab, over a `connection` |
//! | `socket` | a WebSocket that passes messages unread, for script workers |
//! | `chromium_flags` | the option `--chromium-flag` |

pub mod chromium_flags;
pub mod connection;
pub mod devtools;
pub mod socket;
pub mod tab;
