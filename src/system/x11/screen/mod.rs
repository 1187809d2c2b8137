//! The contents of an X server's screen: its pixels, the cursor and the damaged region.
//!
//! - [`Screen`] captures complete images on demand (screenshots).
//! - [`WatchedScreen`] keeps one image up to date and reports what has changed (live view,
//!   recorder).
//! - [`geometry`] and [`damage`] hold the sizes, rectangles and regions that both consumers share.
//! - [`image`] encodes and decodes pixels, [`cursor`] draws the cursor over them.
//! - [`segment`] is the memory that the server writes pixels to (MIT-SHM).
//!
//! ```text
//!  X server ──damage events (XDamage)──► WatchedScreen::wait
//!  X server ◄──fetch damaged rows─────── WatchedScreen::update ──► rectangles, Image
//!      └─────pixels (shared memory)────► Segment
//! ```
//!
//! Every consumer opens its own connection and calls block the calling thread: for milliseconds
//! normally, for seconds if the server does not respond.

use std::io;

use x11rb::{
    errors::{ConnectionError, ReplyError},
    protocol::ErrorKind,
};

use crate::system::x11::server::X11Error;

mod capture;
mod cursor;
mod damage;
mod geometry;
mod image;
mod segment;
mod watched;

pub(in crate::system) use geometry::bands;
pub use {
    capture::Screen,
    cursor::PointerImage,
    damage::DamageRegion,
    geometry::{Point, Rect, Size},
    image::{BYTES_PER_PIXEL, Image, decode_png},
    watched::{Pointer, WaitResult, WatchedScreen},
};

/// Attempts to capture a screen that changes its size meanwhile.
const MAX_CAPTURE_ATTEMPTS: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum ScreenError {
    #[error(transparent)]
    X11(#[from] X11Error),
    #[error("cannot wait for screen changes: {0}")]
    Wait(#[from] io::Error),
    #[error("the X server does not support {0}")]
    Unsupported(&'static str),
    #[error("the screen changed its size during {MAX_CAPTURE_ATTEMPTS} capture attempts")]
    Resizing,
}

impl From<ConnectionError> for ScreenError {
    fn from(error: ConnectionError) -> Self {
        Self::X11(error.into())
    }
}

impl From<ReplyError> for ScreenError {
    fn from(error: ReplyError) -> Self {
        Self::X11(error.into())
    }
}

impl ScreenError {
    /// Returns whether the screen became smaller than the requested area.
    fn is_out_of_bounds(&self) -> bool {
        matches!(
            self,
            Self::X11(X11Error::Reply(ReplyError::X11Error(error)))
                if matches!(error.error_kind, ErrorKind::Match | ErrorKind::Value)
        )
    }
}
