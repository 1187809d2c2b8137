//! Images, video and sound.
//!
//! - [`jpeg`] encodes parts of the screen for the live view.
//! - [`recorder`] records a screen to a video file with ffmpeg.
//! - [`sound`] checks whether a PulseAudio server is reachable.

pub mod jpeg;
pub mod recorder;
pub mod sound;
