//! How the files of recordings are called: the id, and one of these endings.

/// Where they lie, in an agent's state folder.
pub const FOLDER: &str = "replays";
/// What is known of it.
pub const NOTES: &str = ".json";
/// To be played from.
pub const WHOLE: &str = ".mp4";
/// While it is recorded, and as long as it is not finished.
pub const PART: &str = ".part.mp4";
/// While it is being finished.
pub const DRAFT: &str = ".draft.mp4";
