//! The socket of the hooks. It is in a directory that only the agent's user can enter.

use std::{io, path::PathBuf, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    time::{sleep, timeout},
};

use super::Template;
use crate::{
    api::suspend::{AgentHook, AgentHookAnswer},
    shutdown::Shutdown,
    system::files::remove::remove_file_if_exists,
};

/// The longest time in which a hook arrives.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The delay after an error, usually for want of a free file descriptor.
const ERROR_DELAY: Duration = Duration::from_secs(1);
/// The most bytes of a hook.
const MAX_REQUEST: u64 = 4096;

/// Answers hooks, one after another, until the machine was resumed or the agent ends.
///
/// # Errors
/// Fails if the socket cannot be created.
pub(super) fn serve(path: PathBuf, template: Template, shutdown: &Shutdown) -> io::Result<()> {
    remove_file_if_exists(&path)?;
    let listener = UnixListener::bind(&path)?;
    let stop = shutdown.clone();
    shutdown.spawn(async move {
        tokio::select! {
            () = answer_all(&listener, &template) => {}
            () = stop.requested() => {}
        }
        if let Err(error) = remove_file_if_exists(&path) {
            tracing::warn!("cannot remove {}: {error}", path.display());
        }
    });
    Ok(())
}

async fn answer_all(listener: &UnixListener, template: &Template) {
    while !template.is_resumed().await {
        let answered = match listener.accept().await {
            Ok((stream, _)) => answer(stream, template).await,
            Err(error) => {
                sleep(ERROR_DELAY).await;
                Err(error)
            }
        };
        if let Err(error) = answered {
            tracing::warn!("a hook of the machine failed: {error}");
        }
    }
}

async fn answer(stream: UnixStream, template: &Template) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    let mut request = (&mut stream).take(MAX_REQUEST);
    timeout(REQUEST_TIMEOUT, request.read_line(&mut line)).await??;
    let answer = match serde_json::from_str::<AgentHook>(&line) {
        Ok(hook) => template.answer(hook).await,
        // The error of the parser could have a part of the token.
        Err(_) => AgentHookAnswer::Refused {
            reason: "not a hook".to_owned(),
        },
    };
    let mut answer = serde_json::to_vec(&answer)?;
    answer.push(b'\n');
    stream.write_all(&answer).await
}
