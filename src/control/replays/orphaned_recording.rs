//! Reads the recordings that a stopped host left behind: their files and the agent's metadata.
//!
//! Clients of the browser may have put anything into the directory. Links are not followed, and
//! metadata is not trusted.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use chrono::{DateTime, Utc};
use serde::Deserialize;

use crate::{
    api::{
        ids::{BrowserId, ReplayId},
        replays::ReplayEndReason,
        time::Timestamp,
    },
    control::store::ReplayEnd,
    system::media::recorder::files::{FINISHED_SUFFIX, METADATA_SUFFIX, PARTIAL_SUFFIX},
};

/// The most bytes of a metadata file that are read.
const MAX_METADATA: u64 = 64 << 10;

/// The metadata that an agent wrote for a recording. A killed agent has written only a part of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RecordingMetadata {
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    end_reason: Option<ReplayEndReason>,
    duration_ms: Option<u64>,
    size_bytes: Option<u64>,
}

/// A recording in the directory of a stopped host.
#[derive(Debug)]
pub(super) struct OrphanedRecording {
    pub(super) id: ReplayId,
    pub(super) started_at: DateTime<Utc>,
    pub(super) end: ReplayEnd,
    /// `None` if nothing was recorded.
    pub(super) file: Option<PathBuf>,
    /// Whether the agent died before it finalized the file.
    pub(super) is_partial: bool,
}

/// Lists the browsers that have a directory of orphaned recordings.
pub(super) fn browsers_in(directory: &Path) -> io::Result<BTreeSet<BrowserId>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    let mut browsers = BTreeSet::new();
    for entry in entries {
        let name = entry?.file_name();
        browsers.extend(name.to_str().and_then(|name| name.parse().ok()));
    }
    Ok(browsers)
}

/// Reads the orphaned recordings of one browser: the `known` ones, and up to `max_unknown` others.
pub(super) fn recordings_in(
    directory: &Path,
    known: &HashSet<ReplayId>,
    max_unknown: usize,
) -> io::Result<Vec<OrphanedRecording>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut suffixes: BTreeMap<ReplayId, Vec<&str>> = BTreeMap::new();
    let (mut unknown, mut ignored) = (0, 0);
    for entry in entries {
        let name = entry?.file_name();
        let Some((id, suffix)) = name.to_str().and_then(split_name) else {
            continue;
        };
        if let Some(found) = suffixes.get_mut(&id) {
            found.push(suffix);
        } else if known.contains(&id) {
            suffixes.insert(id, vec![suffix]);
        } else if unknown < max_unknown {
            unknown += 1;
            suffixes.insert(id, vec![suffix]);
        } else {
            ignored += 1;
        }
    }
    if ignored > 0 {
        tracing::error!(
            directory = %directory.display(),
            files = ignored,
            "removed files of more recordings than a browser may have"
        );
    }
    suffixes
        .into_iter()
        .map(|(id, suffixes)| read_recording(directory, id, &suffixes))
        .collect()
}

/// Removes a directory of orphaned recordings if nothing in it, nor itself, was modified since
/// `before`. Returns whether it did.
pub(super) fn remove_if_older(directory: &Path, before: DateTime<Utc>) -> io::Result<bool> {
    let is_older = |path: &Path| -> io::Result<bool> {
        let found = fs::symlink_metadata(path)?;
        Ok(DateTime::<Utc>::from(found.modified()?) < before)
    };
    if !is_older(directory)? {
        return Ok(false);
    }
    for entry in fs::read_dir(directory)? {
        if !is_older(&entry?.path())? {
            return Ok(false);
        }
    }
    fs::remove_dir_all(directory)?;
    Ok(true)
}

/// Splits the name of a recording's file into the id and the suffix.
fn split_name(name: &str) -> Option<(ReplayId, &'static str)> {
    // `PARTIAL_SUFFIX` ends with `FINISHED_SUFFIX`, so it is tried first.
    let suffixes = [PARTIAL_SUFFIX, FINISHED_SUFFIX, METADATA_SUFFIX];
    let named = |suffix: &'static str| Some((name.strip_suffix(suffix)?, suffix));
    let (id, suffix) = suffixes.into_iter().find_map(named)?;
    Some((id.parse().ok()?, suffix))
}

fn read_recording(
    directory: &Path,
    id: ReplayId,
    suffixes: &[&str],
) -> io::Result<OrphanedRecording> {
    let path = |suffix| directory.join(format!("{id}{suffix}"));
    let metadata = if suffixes.contains(&METADATA_SUFFIX) {
        read_metadata(&path(METADATA_SUFFIX)).unwrap_or_else(|error| {
            tracing::warn!(replay = %id, %error, "cannot read metadata of orphaned recording");
            RecordingMetadata::default()
        })
    } else {
        RecordingMetadata::default()
    };
    // Both files exist if the agent was killed between finalizing the one and removing the other.
    let file = [FINISHED_SUFFIX, PARTIAL_SUFFIX]
        .into_iter()
        .find_map(|suffix| {
            let path = path(suffix);
            let found = fs::symlink_metadata(&path).ok()?;
            (found.is_file() && found.len() > 0).then_some((path, found, suffix))
        });
    let modified_at = match &file {
        Some((_, found, _)) => Some(DateTime::<Utc>::from(found.modified()?)),
        None => None,
    };
    let now = Utc::now();
    let finished_at = metadata.finished_at.map(|time| time.0).or(modified_at);
    let finished_at = finished_at.map_or(now, |time| time.min(now));
    let started_at = metadata.started_at.map(|time| time.0.min(finished_at));
    Ok(OrphanedRecording {
        started_at: started_at.unwrap_or(finished_at),
        end: ReplayEnd {
            finished_at: Some(finished_at),
            reason: Some(metadata.end_reason.unwrap_or(ReplayEndReason::AgentEnded)),
            duration_ms: metadata.duration_ms,
            size_bytes: match &file {
                Some((_, found, _)) => Some(found.len()),
                // Without a file, the only size to believe is that nothing was recorded.
                None => metadata.size_bytes.filter(|size| *size == 0),
            },
        },
        is_partial: file
            .as_ref()
            .is_some_and(|(_, _, suffix)| *suffix == PARTIAL_SUFFIX),
        file: file.map(|(path, ..)| path),
        id,
    })
}

fn read_metadata(path: &Path) -> io::Result<RecordingMetadata> {
    let mut text = Vec::new();
    open_regular(path)?
        .take(MAX_METADATA)
        .read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// Opens a regular file. Rejects links and, without blocking on them, special files.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("not a regular file"))
    }
}
