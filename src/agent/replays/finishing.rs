//! The end of a recording's making: its file in the form that is best to play.

use std::{fs, io, path::Path, time::Duration};

use crate::{
    agent::replays::files::Files,
    api::ids::ReplayId,
    shutdown::Shutdown,
    system::media::recorder::{self, FinishError},
};

/// For copying what was recorded: at most a file of some gigabytes, twice.
const LIMIT: Duration = Duration::from_secs(120);
/// What is left of that when the agent is being stopped.
const LIMIT_AT_STOP: Duration = Duration::from_secs(4);

#[derive(Debug, Default)]
pub struct Finished {
    /// None where it is not known: there may be a recording that could not be put in its place.
    pub bytes: Option<u64>,
    /// Where the file tells it.
    pub duration: Option<Duration>,
}

/// Whatever fails here, what was recorded stays and plays.
pub async fn finish(
    files: &Files,
    id: &ReplayId,
    program: Option<&Path>,
    shutdown: &Shutdown,
) -> Finished {
    let (part, draft) = (files.part(id), files.draft(id));
    let recorded = tokio::fs::metadata(&part).await;
    let drafted = match program {
        Some(program) if recorded.is_ok_and(|part| part.len() > 0) => {
            let copying = recorder::finish(program, &part, &draft, LIMIT);
            let stopped = async {
                shutdown.stopped().await;
                tokio::time::sleep(LIMIT_AT_STOP).await;
            };
            tokio::select! {
                copied = copying => copied,
                () = stopped => Err(FinishError::Deadline),
            }
        }
        _ => Err(FinishError::Failed("nothing was recorded".into())),
    };
    if let Err(error) = &drafted {
        tracing::warn!(replay = %id, %error, "a recording stays in the form it was recorded in");
    }
    let (files, owned) = (files.clone(), id.clone());
    let settling = tokio::task::spawn_blocking(move || settle(&files, &owned, drafted.is_ok()));
    match settling.await.map_err(io::Error::other).flatten() {
        Ok(finished) => finished,
        Err(error) => {
            tracing::error!(replay = %id, %error, "a recording cannot be put in its place");
            Finished::default()
        }
    }
}

fn settle(files: &Files, id: &ReplayId, drafted: bool) -> io::Result<Finished> {
    files.settle(id, drafted)?;
    let whole = files.whole(id);
    let bytes = match fs::metadata(&whole) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    // In the form it was recorded in it tells none.
    let duration = recorder::duration(&whole).ok();
    Ok(Finished {
        bytes: Some(bytes),
        duration: duration.filter(|length| !length.is_zero()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_cannot_be_put_in_its_place_is_not_told_to_be_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (files, id) = (Files::new(folder.path().to_owned()), ReplayId::generate());
        let nothing = finish(&files, &id, None, &Shutdown::new()).await;
        assert_eq!(nothing.bytes, Some(0));
        fs::write(files.part(&id), "recorded").unwrap();
        fs::create_dir(files.whole(&id)).unwrap();
        let failed = finish(&files, &id, None, &Shutdown::new()).await;
        assert_eq!(failed.bytes, None);
        assert_eq!(fs::read(files.part(&id)).unwrap(), b"recorded");
        fs::remove_dir(files.whole(&id)).unwrap();
        let settled = finish(&files, &id, None, &Shutdown::new()).await;
        assert_eq!(settled.bytes, Some(8));
    }
}
