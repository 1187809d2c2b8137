//! Records a screen to a video file that is playable at every moment, encoded by an ffmpeg child
//! process.
//!
//! ```text
//!  WatchedScreen ──► ScreenCapture ──► Canvas ──► FrameSender ──pipe──► ffmpeg ──► ID.part.mp4
//!   (damage)         (own thread)      (I420)     (Matroska)                          │
//!                                                                          finish() ◄─┘
//!                                                                             │
//!                                                        ID.draft.mp4 ──rename──► ID.mp4
//! ```
//!
//! - [`capture`]: waits for the screen to change and sends a frame each time. Owns the canvas.
//! - [`canvas`]: the frame's pixels, converted only where the screen has changed.
//! - [`encoder`]: starts ffmpeg and writes frames to its pipe, as a [`matroska`] stream that
//!   carries each frame's time.
//! - [`mod@finish`]: rewrites a recording with its index at the start, for seeking.
//! - [`files`]: the names of the files above.

mod canvas;
mod capture;
mod encoder;
pub mod files;
mod finish;
mod matroska;

pub use {
    capture::{CaptureEnd, CaptureOptions, ScreenCapture, StopHandle},
    encoder::{AudioSource, EncoderOptions, FrameSender, start},
    finish::{FinishError, duration, finish},
};

/// The encoder's arguments for quality and speed. Text stays sharp; the fastest preset leaves the
/// CPU to the browser.
pub const ENCODER: [&str; 6] = ["-preset", "ultrafast", "-tune", "zerolatency", "-crf", "26"];

/// The text in ffmpeg's error output when the disk is full.
pub const DISK_FULL: &str = "No space left on device";
