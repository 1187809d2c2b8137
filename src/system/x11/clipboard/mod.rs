//! The clipboard of a screen: the X selection `CLIPBOARD`.
//!
//! The X server does not store a selection: its owner answers each paste. Our texts are owned by a
//! child process.
//!
//! ```text
//!  OwnerProcess ──stdin: OFFER or RESTORE, length, text──► run_owner (arboard) ──► X server
//!       ▲                                                      │
//!       └───────────stdout: ACQUIRED or LOST, one byte─────────┘
//! ```
//!
//! - [`owner_process`]: the child as its parent sees it; [`owner_main`]: the child itself. It is a
//!   process because arboard only supports the display named by its environment.
//! - [`reader`]: reads the text of any owner. Implemented here because arboard waits up to 24 s for
//!   an owner that does not answer, gives up if 10 ms pass between two parts of a text, and has no
//!   limit on its length.
//! - [`selection_watch`]: waits until something is copied.

mod owner_main;
mod owner_process;
mod reader;
mod selection_watch;

pub use {
    owner_main::run_owner,
    owner_process::{OfferMode, OwnerError, OwnerProcess, Ownership},
    reader::{ClipboardContent, ReadError, read},
    selection_watch::SelectionWatch,
};

/// The subcommand that runs [`run_owner`].
pub const COMMAND: &str = "clipboard-owner";

/// The first byte of a request to the child. The length of the text (four bytes, little endian) and
/// the text follow.
mod request {
    /// Own the clipboard with this text.
    pub(super) const OFFER: u8 = b't';
    /// Own the clipboard with this text unless it has an owner.
    pub(super) const RESTORE: u8 = b'r';
}

/// The one-byte events that the child sends.
mod event {
    /// The child owns the clipboard.
    pub(super) const ACQUIRED: u8 = b'o';
    /// Another client owns the clipboard, or none does.
    pub(super) const LOST: u8 = b'l';
}
