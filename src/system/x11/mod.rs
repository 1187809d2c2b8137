//! The X server: connection, screen, input and clipboard.
//!
//! - [`server`]: connects with a display's cookie, sets its mode, admits users.
//! - [`socket`]: reserves a display number, and decides which users may connect.
//! - [`screen`]: captures and follows the screen's image.
//! - [`input`]: plays mouse and keyboard input on one thread per process.
//! - [`clipboard`]: owns, reads and watches the `CLIPBOARD` selection.
//! - `stream`: the socket below each connection, with timeouts.
//!
//! Connections are not shared between these parts: each opens its own, so that none waits for
//! another. All calls block; callers use threads of their own or `spawn_blocking`.

pub mod clipboard;
pub mod input;
pub mod screen;
pub mod server;
pub mod socket;
mod stream;
