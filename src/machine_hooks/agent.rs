//! Calls of the agent: one line of JSON there and back.

use std::{io, path::Path, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    time::timeout,
};

use crate::api::suspend::{AgentHook, AgentHookAnswer};

/// The longest wait for an answer, in which the agent replaces its processes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The most bytes of an answer.
const MAX_ANSWER: u64 = 4096;

/// Calls the agent through its socket.
///
/// # Errors
/// Fails if there is no agent of a template, or if it does not answer.
pub(super) async fn call(socket: &Path, hook: &AgentHook) -> io::Result<AgentHookAnswer> {
    timeout(TIMEOUT, exchange(socket, hook)).await?
}

async fn exchange(socket: &Path, hook: &AgentHook) -> io::Result<AgentHookAnswer> {
    let mut stream = UnixStream::connect(socket).await?;
    // It may have a join token.
    let request = SecretString::from(serde_json::to_string(hook)?);
    stream.write_all(request.expose_secret().as_bytes()).await?;
    stream.write_all(b"\n").await?;
    let mut answer = String::new();
    let mut stream = BufReader::new(stream).take(MAX_ANSWER);
    stream.read_line(&mut answer).await?;
    Ok(serde_json::from_str(&answer)?)
}
