//! Films a screen into a file that plays at every instant: frames when something has changed, encoded by ffmpeg beside us.

mod camera;
mod canvas;
mod encoder;
pub mod files;
mod finish;
mod matroska;

pub use camera::{Camera, Cut, Scene, Stop};
pub use encoder::{Feed, Options, Sound, start};
pub use finish::{FinishError, duration, finish};

/// How the picture is encoded. Text stays sharp; the fastest preset, since the machine is the browser's.
pub const ENCODER: [&str; 6] = ["-preset", "ultrafast", "-tune", "zerolatency", "-crf", "26"];

/// What the encoder says where there is no room for more.
pub const NO_ROOM: &str = "No space left on device";
