//! Finishes a recording: rewrites its file for playback and publishes it.

use std::{fs, io, path::Path, time::Duration};

use super::files::ReplayFiles;
use crate::{
    api::ids::ReplayId,
    shutdown::Shutdown,
    system::media::recorder::{self, FinishError},
};

/// The time the rewrite may take: it copies a file of at most some gigabytes, twice.
const FINISH_TIMEOUT: Duration = Duration::from_secs(120);
/// The time the rewrite may still take once the agent shuts down.
const SHUTDOWN_FINISH_TIMEOUT: Duration = Duration::from_secs(4);

#[derive(Debug, Default)]
pub(super) struct FinishedFile {
    /// `None` if unknown: there may be a recording that could not be published.
    pub(super) bytes: Option<u64>,
    /// `None` if the file's header has no duration.
    pub(super) duration: Option<Duration>,
}

/// Finishes a recording with ffmpeg (`program`). If that fails, the recording is published in the
/// form it was recorded in.
pub(super) async fn finish(
    files: &ReplayFiles,
    id: &ReplayId,
    program: Option<&Path>,
    shutdown: &Shutdown,
) -> FinishedFile {
    let (partial, draft) = (files.partial_path(id), files.draft_path(id));
    let recorded = tokio::fs::metadata(&partial).await;
    let rewritten = match program {
        Some(program) if recorded.is_ok_and(|file| file.len() > 0) => {
            let rewrite = recorder::finish(program, &partial, &draft, FINISH_TIMEOUT);
            let shutdown_timeout = async {
                shutdown.requested().await;
                tokio::time::sleep(SHUTDOWN_FINISH_TIMEOUT).await;
            };
            tokio::select! {
                result = rewrite => result,
                () = shutdown_timeout => Err(FinishError::Timeout),
            }
        }
        _ => Err(FinishError::Failed("nothing was recorded".into())),
    };
    if let Err(error) = &rewritten {
        tracing::warn!(replay = %id, %error, "cannot rewrite recording, publishing it as is");
    }
    let (files, owned_id) = (files.clone(), id.clone());
    let publish =
        tokio::task::spawn_blocking(move || publish(&files, &owned_id, rewritten.is_ok()));
    match publish.await.map_err(io::Error::other).flatten() {
        Ok(finished) => finished,
        Err(error) => {
            tracing::error!(replay = %id, %error, "cannot publish recording");
            FinishedFile::default()
        }
    }
}

fn publish(files: &ReplayFiles, id: &ReplayId, rewritten: bool) -> io::Result<FinishedFile> {
    files.publish(id, rewritten)?;
    let path = files.finished_path(id);
    let bytes = match fs::metadata(&path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    // A fragmented file has no duration in its header.
    let duration = recorder::duration(&path).ok();
    Ok(FinishedFile {
        bytes: Some(bytes),
        duration: duration.filter(|duration| !duration.is_zero()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn size_is_unknown_if_the_recording_cannot_be_published() {
        let directory = tempfile::tempdir().unwrap();
        let files = ReplayFiles::new(directory.path().to_owned());
        let id = ReplayId::generate();
        let empty = finish(&files, &id, None, &Shutdown::new()).await;
        assert_eq!(empty.bytes, Some(0));
        fs::write(files.partial_path(&id), "recorded").unwrap();
        fs::create_dir(files.finished_path(&id)).unwrap();
        let failed = finish(&files, &id, None, &Shutdown::new()).await;
        assert_eq!(failed.bytes, None);
        assert_eq!(fs::read(files.partial_path(&id)).unwrap(), b"recorded");
        fs::remove_dir(files.finished_path(&id)).unwrap();
        let published = finish(&files, &id, None, &Shutdown::new()).await;
        assert_eq!(published.bytes, Some(8));
    }
}
