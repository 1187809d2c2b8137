//! The files of recordings: metadata (`ID.json`) and video. See
//! [`crate::system::media::recorder::files`] for their names.
//!
//! Files are created and removed in an order that lets the next agent clean up after a crash:
//! metadata is written before the video and removed first.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crate::{
    api::{ids::ReplayId, replays::Replay},
    system::{
        files::remove::{remove_all, remove_or_warn},
        media::recorder::files::{DRAFT_SUFFIX, FINISHED_SUFFIX, METADATA_SUFFIX, PARTIAL_SUFFIX},
    },
};

/// The minimum size of a metadata file: room for all that is ever written. It is allocated when a
/// recording starts, so that its end can be written to a full disk.
const METADATA_BYTES: usize = 1024;

/// The directory of recordings.
#[derive(Clone, Debug)]
pub(super) struct ReplayFiles(PathBuf);

impl ReplayFiles {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.0
    }

    fn path(&self, id: &ReplayId, suffix: &str) -> PathBuf {
        self.0.join(format!("{id}{suffix}"))
    }

    pub(super) fn partial_path(&self, id: &ReplayId) -> PathBuf {
        self.path(id, PARTIAL_SUFFIX)
    }

    pub(super) fn draft_path(&self, id: &ReplayId) -> PathBuf {
        self.path(id, DRAFT_SUFFIX)
    }

    pub(super) fn finished_path(&self, id: &ReplayId) -> PathBuf {
        self.path(id, FINISHED_SUFFIX)
    }

    /// Writes a recording's metadata.
    ///
    /// # Errors
    /// If the disk is full, the first time only.
    pub(super) fn write_metadata(&self, replay: &Replay) -> io::Result<()> {
        let mut metadata = serde_json::to_vec(replay)?;
        metadata.resize(METADATA_BYTES.max(metadata.len()), b' ');
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path(&replay.replay_id, METADATA_SUFFIX))?;
        file.write_all_at(&metadata, 0)
    }

    /// Opens a finished recording and returns it with its size in bytes.
    ///
    /// # Errors
    /// If nothing was recorded.
    pub(super) fn open(&self, id: &ReplayId) -> io::Result<(File, u64)> {
        let file = File::open(self.finished_path(id))?;
        let length = file.metadata()?.len();
        Ok((file, length))
    }

    /// Removes all files of a recording. If this is interrupted, the next agent completes it.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub(super) fn remove(&self, id: &ReplayId) -> io::Result<()> {
        for suffix in [
            METADATA_SUFFIX,
            FINISHED_SUFFIX,
            PARTIAL_SUFFIX,
            DRAFT_SUFFIX,
        ] {
            remove_all(&self.path(id, suffix))?;
        }
        Ok(())
    }

    /// Renames the draft, or the partial file if the draft is incomplete, to the finished file. The
    /// partial file is removed only once the finished one is durable.
    ///
    /// # Errors
    /// If the file cannot be renamed.
    pub(super) fn publish(&self, id: &ReplayId, draft_is_complete: bool) -> io::Result<()> {
        let draft = self.draft_path(id);
        let partial = self.partial_path(id);
        let finished = self.finished_path(id);
        if draft_is_complete {
            self.rename_durably(&draft, &finished)?;
            // The recording is complete even if this fails.
            remove_or_warn(&partial);
            return Ok(());
        }
        remove_or_warn(&draft);
        match self.rename_durably(&partial, &finished) {
            // Nothing was recorded.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            renamed => renamed,
        }
    }

    /// Renames a file so that a power failure leaves one of both, complete.
    fn rename_durably(&self, from: &Path, to: &Path) -> io::Result<()> {
        File::open(from)?.sync_all()?;
        fs::rename(from, to)?;
        File::open(&self.0)?.sync_all()
    }

    /// Returns all recordings with metadata. Removes drafts, and videos without metadata: their
    /// removal was interrupted.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(super) fn scan(&self) -> io::Result<Vec<Replay>> {
        let mut replays = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((id, suffix)) = name.to_str().and_then(parse_name) else {
                continue;
            };
            match suffix {
                METADATA_SUFFIX => match read_metadata(&entry.path(), &id) {
                    Ok(replay) => replays.push(replay),
                    Err(error) => {
                        tracing::warn!(replay = %id, %error, "cannot read recording metadata");
                    }
                },
                DRAFT_SUFFIX => remove_or_warn(&entry.path()),
                _ if !self.path(&id, METADATA_SUFFIX).exists() => remove_or_warn(&entry.path()),
                _ => {}
            }
        }
        Ok(replays)
    }
}

/// Splits a file name into the recording's id and the suffix.
fn parse_name(name: &str) -> Option<(ReplayId, &str)> {
    let (id, suffix) = name.split_at_checked(name.find('.')?)?;
    Some((id.parse().ok()?, suffix))
}

fn read_metadata(path: &Path, id: &ReplayId) -> io::Result<Replay> {
    let replay: Replay = serde_json::from_slice(&fs::read(path)?)?;
    match replay.replay_id == *id {
        true => Ok(replay),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;

    use super::*;
    use crate::api::replays::ReplayEndReason;

    fn replay() -> Replay {
        Replay::recording(ReplayId::generate(), Utc::now().into())
    }

    fn names(files: &ReplayFiles) -> Vec<String> {
        let entries = fs::read_dir(&files.0).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn scan_returns_the_metadata_written_last() {
        let directory = tempfile::tempdir().unwrap();
        let files = ReplayFiles::new(directory.path().to_owned());
        let mut replay = replay();
        replay.end_reason = Some(ReplayEndReason::EncoderFailed);
        replay.duration_ms = Some(u64::MAX);
        files.write_metadata(&replay).unwrap();
        replay.end_reason = None;
        replay.duration_ms = None;
        files.write_metadata(&replay).unwrap();
        let replays = files.scan().unwrap();
        assert_eq!(replays.len(), 1);
        assert_eq!(replays[0].replay_id, replay.replay_id);
        assert_eq!(replays[0].end_reason, None);
        files.remove(&replay.replay_id).unwrap();
        assert_eq!(names(&files), [""; 0]);
    }

    #[test]
    fn scan_removes_drafts_and_orphaned_videos_but_no_other_files() {
        let directory = tempfile::tempdir().unwrap();
        let files = ReplayFiles::new(directory.path().to_owned());
        let (stored, orphan) = (replay(), ReplayId::generate());
        files.write_metadata(&stored).unwrap();
        for path in [
            &files.finished_path(&stored.replay_id),
            &files.draft_path(&stored.replay_id),
            &files.partial_path(&orphan),
            &files.finished_path(&orphan),
            &directory.path().join("other.mp4"),
        ] {
            fs::write(path, "video").unwrap();
        }
        assert_eq!(files.scan().unwrap().len(), 1);
        let id = stored.replay_id;
        assert_eq!(
            names(&files),
            [
                "other.mp4".to_owned(),
                format!("{id}.json"),
                format!("{id}.mp4")
            ]
        );
    }

    #[test]
    fn partial_file_is_published_if_the_draft_is_incomplete() {
        let directory = tempfile::tempdir().unwrap();
        let files = ReplayFiles::new(directory.path().to_owned());
        let id = ReplayId::generate();
        files.publish(&id, false).unwrap();
        assert!(files.open(&id).is_err());
        fs::write(files.partial_path(&id), "recorded").unwrap();
        fs::write(files.draft_path(&id), "half").unwrap();
        files.publish(&id, false).unwrap();
        assert_eq!(names(&files), [format!("{id}.mp4")]);
        assert_eq!(files.open(&id).unwrap().1, 8);
    }
}
