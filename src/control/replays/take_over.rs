//! Taking recordings out of what hosts have left: those whose agent was killed, or did not have the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use chrono::{DateTime, Utc};
use serde::Deserialize;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::io::ReaderStream;

use super::{
    Replays, TransferError,
    state::{Event, State},
};
use crate::{
    api::{
        ids::{BrowserId, ProjectId, ReplayId},
        replays::ReplayEndReason,
        time::Timestamp,
    },
    control::store::{ReplayEnd, StoreError},
    system::media::recorder::{
        self,
        files::{DRAFT_SUFFIX, FINISHED_SUFFIX, METADATA_SUFFIX, PARTIAL_SUFFIX},
    },
};

/// Waiting before what failed is tried again: the first time, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// What an agent writes down of a recording is short.
const MAX_NOTES: u64 = 64 << 10;
/// Read at a time.
const CHUNK: usize = 256 << 10;

/// Finishes what an agent did not, where it is there, within this time.
const FFMPEG: &str = "ffmpeg";
const FINISH: Duration = Duration::from_secs(120);

/// What an agent wrote down of a recording; one that was killed has written less.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Notes {
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    end_reason: Option<ReplayEndReason>,
    duration_ms: Option<u64>,
    size_bytes: Option<u64>,
}

/// A recording as it was left.
#[derive(Debug)]
struct OrphanedRecording {
    id: ReplayId,
    started_at: DateTime<Utc>,
    end: ReplayEnd,
    /// What is to be kept; none where nothing had been recorded.
    file: Option<PathBuf>,
    /// It is what there was of it when its agent died.
    is_part: bool,
}

impl Replays {
    /// Takes what the browser's host has left into the store, again and again until that is done or the server stops. Its host must have
    /// ended.
    pub fn take_over(&self, browser: BrowserId) -> JoinHandle<()> {
        let this = self.clone();
        self.inner.shutdown.spawn(async move {
            let mut pause = AGAIN.0;
            while let Err(error) = this.take_over_once(&browser).await {
                if this.inner.shutdown.stopping() {
                    return;
                }
                tracing::warn!(%browser, %error, "replays cannot be taken over; it is tried again");
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = this.inner.shutdown.stopped() => return,
                }
                pause = pause.saturating_mul(2).min(AGAIN.1);
            }
        })
    }

    /// As [`Self::take_over`], for every browser an earlier run has left something of.
    pub(super) async fn take_over_all(&self) -> Result<(), StoreError> {
        let folder = self.inner.left.clone();
        let left = spawn_blocking(move || browsers_in(&folder)).await;
        let left = left.map_err(io::Error::other).and_then(|left| left);
        let left = left.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot look at what hosts have left");
            BTreeSet::new()
        });
        let open = self.inner.store.browsers_with_open_replays().await?;
        for browser in left.into_iter().chain(open).collect::<BTreeSet<_>>() {
            self.take_over(browser);
        }
        Ok(())
    }

    async fn take_over_once(&self, browser: &BrowserId) -> Result<(), TransferError> {
        let folder = self.inner.left.join(browser.as_str());
        let looked_at = folder.clone();
        let left = spawn_blocking(move || recordings_in(&looked_at)).await;
        let left = left.map_err(io::Error::other)??;
        let store = &self.inner.store;
        if !left.is_empty() {
            match store.project_of_browser(browser).await? {
                Some(project) => self.keep_all(&project, browser, &left).await?,
                None => {
                    let count = left.len();
                    tracing::error!(%browser, count, "replays of an unknown browser are removed");
                }
            }
        }
        // Its host has ended, and nothing more will come.
        for row in store.open_replays_of(browser).await? {
            tracing::error!(%browser, replay = %row.id, reason = ?row.end.reason, "a replay is lost: its host has left nothing of it");
            self.miss(&row.id).await?;
        }
        match tokio::fs::remove_dir_all(&folder).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Keeps all that can be kept; what fails first is told then.
    async fn keep_all(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        left: &[OrphanedRecording],
    ) -> Result<(), TransferError> {
        let mut failed = None;
        let mut known = Vec::new();
        // What is known of them first: the files may take their time.
        for left in left {
            match self.know(project, browser, left).await {
                Ok(true) => known.push(left),
                Ok(false) => {}
                Err(error) => {
                    failed.get_or_insert(error.into());
                }
            }
        }
        for left in known {
            if let Err(error) = self.keep(browser, left).await {
                failed.get_or_insert(error);
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Takes down what was left of a recording; false where it is none of the browser's.
    async fn know(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        left: &OrphanedRecording,
    ) -> Result<bool, StoreError> {
        let (id, started_at) = (&left.id, left.started_at);
        let owned = self.enter(project, browser, id, started_at).await?;
        if owned {
            let end = |_: &_| left.end.clone();
            self.apply(id, Event::Ended, end).await?;
        }
        Ok(owned)
    }

    async fn keep(
        &self,
        browser: &BrowserId,
        left: &OrphanedRecording,
    ) -> Result<(), TransferError> {
        let Some(recorded) = left.file.clone() else {
            return Ok(());
        };
        if self.inner.shutdown.stopping() {
            return Err(TransferError::Stopping);
        }
        let _place = self.inner.transfers.acquire().await;
        let _turn = self.inner.turns.take(left.id.clone()).await;
        let found = self.inner.store.find_replay(&left.id).await?;
        // Its agent was about to remove it, or clients have put something else in its place.
        if found.is_none_or(|row| row.state == State::Kept) {
            return Ok(());
        }
        let (path, duration) = match left.is_part {
            true => finish(&left.id, &recorded).await,
            false => (recorded, None),
        };
        let opened = path.clone();
        let opening = spawn_blocking(move || {
            let file = open_regular(&opened)?;
            let size = file.metadata()?.len();
            Ok::<_, io::Error>((tokio::fs::File::from_std(file), size))
        });
        let (file, size) = opening.await.map_err(io::Error::other)??;
        let content = ReaderStream::with_capacity(file, CHUNK);
        match self.bring_in(&left.id, size, content).await {
            Ok(()) => {}
            Err(error @ TransferError::NoRoom(_)) => {
                tracing::error!(%browser, replay = %left.id, %error, "a replay is lost");
                return Ok(self.miss(&left.id).await?);
            }
            Err(error) => return Err(error),
        }
        let end = |_: &_| ReplayEnd {
            size_bytes: Some(size),
            duration_ms: duration.or(left.end.duration_ms),
            ..left.end.clone()
        };
        self.apply(&left.id, Event::Fetched, end).await?;
        tracing::info!(%browser, replay = %left.id, size, "a replay is kept that its host has left");
        for path in left.file.iter().chain([&path]) {
            match tokio::fs::remove_file(path).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Brings what was recorded until its agent died into the form that is best to play, as the agent would have; and its duration. It plays as
/// it is where that cannot be done.
async fn finish(id: &ReplayId, recorded: &Path) -> (PathBuf, Option<u64>) {
    let draft = recorded.with_file_name(format!("{id}{DRAFT_SUFFIX}"));
    let made = recorder::finish(Path::new(FFMPEG), recorded, &draft, FINISH).await;
    if let Err(error) = made {
        tracing::warn!(replay = %id, %error, "a replay is kept in the form it was recorded in");
        return (recorded.to_owned(), None);
    }
    let measured = draft.clone();
    let duration = spawn_blocking(move || recorder::duration(&measured)).await;
    let duration = duration.ok().and_then(Result::ok);
    let millis = duration.and_then(|duration| u64::try_from(duration.as_millis()).ok());
    (draft, millis)
}

fn browsers_in(folder: &Path) -> io::Result<BTreeSet<BrowserId>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    let mut found = BTreeSet::new();
    for entry in entries {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(|name| name.parse().ok()));
    }
    Ok(found)
}

fn recordings_in(folder: &Path) -> io::Result<Vec<OrphanedRecording>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found: BTreeMap<ReplayId, Vec<&str>> = BTreeMap::new();
    for entry in entries {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        // The longer ending first: it has the shorter one in it.
        for ending in [PARTIAL_SUFFIX, FINISHED_SUFFIX, METADATA_SUFFIX] {
            if let Some(id) = name.strip_suffix(ending) {
                if let Ok(id) = id.parse() {
                    found.entry(id).or_default().push(ending);
                }
                break;
            }
        }
    }
    let left = found.into_iter();
    left.map(|(id, files)| look_at(folder, id, &files))
        .collect()
}

fn look_at(folder: &Path, id: ReplayId, files: &[&str]) -> io::Result<OrphanedRecording> {
    let path = |ending| folder.join(format!("{id}{ending}"));
    let notes = if files.contains(&METADATA_SUFFIX) {
        notes_in(&path(METADATA_SUFFIX)).unwrap_or_else(|error| {
            tracing::warn!(replay = %id, %error, "what an agent wrote down of a recording cannot be read");
            Notes::default()
        })
    } else {
        Notes::default()
    };
    // One that was killed between making the whole and removing the part has left both.
    let file = [FINISHED_SUFFIX, PARTIAL_SUFFIX]
        .into_iter()
        .find_map(|ending| {
            let path = path(ending);
            let found = fs::symlink_metadata(&path).ok()?;
            (found.is_file() && found.len() > 0).then_some((path, found, ending))
        });
    let written = match &file {
        Some((_, found, _)) => Some(DateTime::<Utc>::from(found.modified()?)),
        None => None,
    };
    let finished_at = notes.finished_at.map(|time| time.0);
    let now = Utc::now();
    let finished_at = finished_at.or(written).map_or(now, |time| time.min(now));
    let started_at = notes.started_at.map(|time| time.0.min(finished_at));
    Ok(OrphanedRecording {
        started_at: started_at.unwrap_or(finished_at),
        end: ReplayEnd {
            finished_at: Some(finished_at),
            reason: Some(notes.end_reason.unwrap_or(ReplayEndReason::AgentEnded)),
            duration_ms: notes.duration_ms,
            size_bytes: match &file {
                Some((_, found, _)) => Some(found.len()),
                // Only this is told where there is nothing.
                None => notes.size_bytes.filter(|size| *size == 0),
            },
        },
        is_part: file
            .as_ref()
            .is_some_and(|(_, _, ending)| *ending == PARTIAL_SUFFIX),
        file: file.map(|(path, ..)| path),
        id,
    })
}

fn notes_in(path: &Path) -> io::Result<Notes> {
    let mut text = Vec::new();
    open_regular(path)?.take(MAX_NOTES).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// The browser's clients may have put anything into the folder; what a link leads to is none of theirs.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}
