//! Images, video and sound.

pub mod jpeg;
pub mod recorder;
pub mod sound;
