//! The files of recordings: what is known of each, and its film.

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
        media::recorder::files::{DRAFT, NOTES, PART, WHOLE},
    },
};

/// Room for all that is ever noted of a recording: taken at its start, so that its end can be noted on a disk that is full.
const NOTES_BYTES: usize = 1024;

/// The folder they lie in.
#[derive(Clone, Debug)]
pub struct Files(PathBuf);

impl Files {
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    fn of(&self, id: &ReplayId, ending: &str) -> PathBuf {
        self.0.join(format!("{id}{ending}"))
    }

    pub fn part(&self, id: &ReplayId) -> PathBuf {
        self.of(id, PART)
    }

    pub fn draft(&self, id: &ReplayId) -> PathBuf {
        self.of(id, DRAFT)
    }

    pub fn whole(&self, id: &ReplayId) -> PathBuf {
        self.of(id, WHOLE)
    }

    /// Notes what is known of it, in place of what was noted before.
    ///
    /// # Errors
    /// The first time, where there is no room.
    pub fn note(&self, replay: &Replay) -> io::Result<()> {
        let mut notes = serde_json::to_vec(replay)?;
        notes.resize(NOTES_BYTES.max(notes.len()), b' ');
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.of(&replay.replay_id, NOTES))?;
        file.write_all_at(&notes, 0)
    }

    /// # Errors
    /// Where nothing was recorded.
    pub fn open(&self, id: &ReplayId) -> io::Result<(File, u64)> {
        let file = File::open(self.whole(id))?;
        let length = file.metadata()?.len();
        Ok((file, length))
    }

    /// Forgets it. Broken off, the next agent does the rest.
    ///
    /// # Errors
    /// Where it cannot be removed.
    pub fn remove(&self, id: &ReplayId) -> io::Result<()> {
        for ending in [NOTES, WHOLE, PART, DRAFT] {
            remove_all(&self.of(id, ending))?;
        }
        Ok(())
    }

    /// Puts the file in its place that it is to be played from: the draft where that is whole, else what was recorded. What was recorded is
    /// removed once the other one is on the disk.
    ///
    /// # Errors
    /// Where neither can be.
    pub fn settle(&self, id: &ReplayId, draft_is_whole: bool) -> io::Result<()> {
        let (draft, part, whole) = (self.draft(id), self.part(id), self.whole(id));
        if draft_is_whole {
            self.place(&draft, &whole)?;
            // It plays whatever becomes of this.
            remove_or_warn(&part);
            return Ok(());
        }
        remove_or_warn(&draft);
        match self.place(&part, &whole) {
            // Nothing was ever written.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            placed => placed,
        }
    }

    /// Renames a file so that a power cut leaves the one or the other.
    fn place(&self, from: &Path, to: &Path) -> io::Result<()> {
        File::open(from)?.sync_all()?;
        fs::rename(from, to)?;
        File::open(&self.0)?.sync_all()
    }

    /// All that earlier agents have noted. What they had begun to remove is removed, and drafts of theirs.
    ///
    /// # Errors
    /// Where the folder cannot be read.
    pub fn known(&self) -> io::Result<Vec<Replay>> {
        let mut known = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((id, ending)) = name.to_str().and_then(split) else {
                continue;
            };
            match ending {
                NOTES => match read(&entry.path(), &id) {
                    Ok(replay) => known.push(replay),
                    Err(error) => {
                        tracing::warn!(replay = %id, %error, "what was noted of a recording cannot be read");
                    }
                },
                DRAFT => remove_or_warn(&entry.path()),
                // Notes are there before the film, and removed before it.
                _ if !self.of(&id, NOTES).exists() => remove_or_warn(&entry.path()),
                _ => {}
            }
        }
        Ok(known)
    }
}

/// Whose file it is, and which.
fn split(name: &str) -> Option<(ReplayId, &str)> {
    let (id, ending) = name.split_at_checked(name.find('.')?)?;
    Some((id.parse().ok()?, ending))
}

fn read(path: &Path, id: &ReplayId) -> io::Result<Replay> {
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
        Replay::begun(ReplayId::generate(), Utc::now().into())
    }

    fn names(files: &Files) -> Vec<String> {
        let entries = fs::read_dir(&files.0).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_noted_last_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::new(folder.path().to_owned());
        let mut replay = replay();
        replay.end_reason = Some(ReplayEndReason::EncoderFailed);
        replay.duration_ms = Some(u64::MAX);
        files.note(&replay).unwrap();
        replay.end_reason = None;
        replay.duration_ms = None;
        files.note(&replay).unwrap();
        let known = files.known().unwrap();
        assert_eq!(known.len(), 1);
        assert_eq!(known[0].replay_id, replay.replay_id);
        assert_eq!(known[0].end_reason, None);
        files.remove(&replay.replay_id).unwrap();
        assert_eq!(names(&files), [""; 0]);
    }

    #[test]
    fn what_was_half_removed_and_drafts_are_removed_and_what_is_not_ours_stays() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::new(folder.path().to_owned());
        let (kept, gone) = (replay(), ReplayId::generate());
        files.note(&kept).unwrap();
        let whole = files.whole(&kept.replay_id);
        let draft = files.draft(&kept.replay_id);
        let other = folder.path().join("other.mp4");
        for path in [
            &whole,
            &draft,
            &files.part(&gone),
            &files.whole(&gone),
            &other,
        ] {
            fs::write(path, "film").unwrap();
        }
        assert_eq!(files.known().unwrap().len(), 1);
        let id = kept.replay_id;
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
    fn what_was_recorded_takes_its_place_where_it_could_not_be_finished() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::new(folder.path().to_owned());
        let id = ReplayId::generate();
        files.settle(&id, false).unwrap();
        assert!(files.open(&id).is_err());
        fs::write(files.part(&id), "recorded").unwrap();
        fs::write(files.draft(&id), "half").unwrap();
        files.settle(&id, false).unwrap();
        assert_eq!(names(&files), [format!("{id}.mp4")]);
        assert_eq!(files.open(&id).unwrap().1, 8);
    }
}
