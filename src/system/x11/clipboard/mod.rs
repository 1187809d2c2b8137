//! The clipboard of a screen: the X selection `CLIPBOARD`.
//!
//! A selection is not kept by the X server: whoever owns it answers each paste. Ours is owned by a child process ([`Owner`]) that runs
//! [`own`] with arboard in it, since arboard knows of no display but the one its process's environment names. Reading is our own ([`read`]): arboard
//! would wait up to 24 seconds for an owner that does not answer, give up where 10 milliseconds pass between two parts, and take
//! text of any length.

mod changes;
mod owned;
mod owner;
mod reader;

pub use changes::Changes;
pub use owned::own;
pub use owner::{Offer, Offered, Owner, OwnerError};
pub use reader::{ReadError, Selection, read};

/// The subcommand that runs [`own`].
pub const COMMAND: &str = "clipboard-owner";

/// What the child is told: one byte of what to do, the length of the text, the text.
mod request {
    /// Own the clipboard with this text.
    pub const TAKE: u8 = b't';
    /// The same, unless the clipboard is somebody's.
    pub const RESTORE: u8 = b'r';
}

/// What the child tells, a byte each.
mod event {
    /// The clipboard is ours now.
    pub const OURS: u8 = b'o';
    /// It is somebody else's now, or nobody's.
    pub const LOST: u8 = b'l';
}
