//! The names of recordings' files: the recording's id and one of these suffixes.

/// The directory of recordings within an agent's state directory.
pub const DIRECTORY: &str = "replays";
/// The recording's metadata.
pub const METADATA_SUFFIX: &str = ".json";
/// A finished recording.
pub const FINISHED_SUFFIX: &str = ".mp4";
/// A recording that is in progress, or ended but not finished yet.
pub const PARTIAL_SUFFIX: &str = ".part.mp4";
/// The output of [`super::finish()`] until it is complete.
pub const DRAFT_SUFFIX: &str = ".draft.mp4";
