//! The end of a recording's making: its file in the form that is best to play.

use std::{fs, io, path::Path, time::Duration};

use crate::{
    agent::replays::files::Files,
    api::ids::ReplayId,
    shutdown::Shutdown,
    system::recorder::{self, FinishError},
};

/// For copying what was recorded: at most a file of some gigabytes, twice.
const LIMIT: Duration = Duration::from_secs(120);
/// What is left of that when the agent is being stopped.
const LIMIT_AT_STOP: Duration = Duration::from_secs(4);

#[derive(Debug, Default)]
pub struct Finished {
    pub bytes: u64,
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
    let duration = drafted.then(|| recorder::duration(&whole).ok()).flatten();
    Ok(Finished { bytes, duration })
}
