//! `GET /process/{process_id}/attach`

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{
        Request, State,
        ws::{CloseFrame, Message, WebSocket, close_code},
    },
    response::Response,
};
use bytes::Bytes;
use futures::{Sink, SinkExt, Stream, StreamExt, future::join};
use tokio::{
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{self, UnboundedReceiver, UnboundedSender},
    },
    time::{interval, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{TAG, find};
use crate::{
    agent::{
        Agent,
        process::{Process, WRITE_TIMEOUT},
    },
    api::{ErrorBody, ids::ProcessId, process::ProcessEvent},
    http::{ApiError, ApiResult, Path, closing, see_off, websocket},
    streams::{Entry, From, Reader},
};

/// At least this often something is sent, so that no proxy between takes the connection for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// What is taken from the client before the terminal has taken it: as much as one message may have.
const TYPED_AHEAD: u32 = 1 << 20;
/// What a message takes besides its data.
const MESSAGE_BYTES: u32 = 64;

/// Attach to a process's terminal
///
/// A WebSocket with the terminal's bytes both ways, in binary messages; text messages are typed as well. A client gets the output
/// that is kept, then all that comes. Any number may be attached. The connection ends with code 1000 when the process has exited, and with 1013
/// where the client has fallen behind what is kept: attaching again shows what is.
#[utoipa::path(
    get,
    path = "/process/{process_id}/attach",
    operation_id = "attach_process",
    tag = TAG,
    params(("process_id" = ProcessId, Path)),
    responses(
        (status = 101, description = "the terminal's bytes"),
        (status = 400, body = ErrorBody, description = "the process has no terminal, or this is no WebSocket handshake"),
        (status = 404, body = ErrorBody, description = "there is no such process"),
    )
)]
pub async fn attach(
    State(agent): State<Agent>,
    Path(id): Path<ProcessId>,
    request: Request,
) -> ApiResult<Response> {
    let process = find(&agent, &id)?;
    if !process.has_terminal() {
        return Err(ApiError::bad_request("the process has no terminal"));
    }
    let stop = agent.shutdown.token();
    websocket(request, &agent.shutdown, |socket| {
        carry(socket, process, stop)
    })
    .await
}

async fn carry(socket: WebSocket, process: Arc<Process>, stop: CancellationToken) {
    let (mut to_client, mut from_client) = socket.split();
    let output = process.output(From::Oldest);
    let close = {
        let mut typing = std::pin::pin!(type_in(&mut from_client, &process));
        let close = tokio::select! {
            close = show(output, &mut to_client) => close,
            () = &mut typing => return,
            () = stop.cancelled() => Some(closing(close_code::AWAY, "the agent is stopping")),
        };
        let Some(close) = close else {
            // What it typed before it went is still typed.
            let _ = timeout(WRITE_TIMEOUT, typing).await;
            return;
        };
        close
    };
    see_off(close, &mut to_client, &mut from_client).await;
}

/// Sends the output until it ends; `None` where the client is gone.
async fn show(
    mut output: Reader<Arc<ProcessEvent>>,
    client: &mut (impl Sink<Message> + Unpin),
) -> Option<CloseFrame> {
    let mut heartbeat = interval(HEARTBEAT);
    loop {
        let entry = tokio::select! {
            entry = output.next() => entry,
            _ = heartbeat.tick() => {
                client.send(Message::Ping(Bytes::new())).await.ok()?;
                continue;
            }
        };
        let event = match entry {
            Some(Entry::Item { item, .. }) => item,
            Some(Entry::Gap { .. }) => {
                let reason = "output was dropped before it was taken; attach again";
                return Some(closing(close_code::AGAIN, reason));
            }
            None => return Some(closing(close_code::NORMAL, "")),
        };
        if let Some(code) = event.exit_code {
            let reason = format!("exited with {code}");
            return Some(closing(close_code::NORMAL, reason));
        }
        if let Some(data) = &event.data_b64 {
            let sent = client.send(Message::Binary(data.0.clone())).await;
            sent.ok()?;
        }
    }
}

/// Types what the client sends until it is gone, which is seen even while the terminal takes nothing.
async fn type_in(
    client: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
    process: &Process,
) {
    let (ahead, behind) = mpsc::unbounded_channel();
    let mut typing = std::pin::pin!(type_all(behind, process));
    tokio::select! {
        () = hear(client, ahead) => {}
        // Not before the other.
        () = &mut typing => return,
    }
    // Its Close frame is answered with the next read.
    let answer = async { while client.next().await.is_some() {} };
    let _ = timeout(WRITE_TIMEOUT, join(typing, answer)).await;
}

/// A message that is still to be typed, and its part of [`TYPED_AHEAD`].
struct Typed {
    data: Bytes,
    _room: OwnedSemaphorePermit,
}

/// Takes what the client sends until it says that it goes, or is gone.
async fn hear(
    client: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
    ahead: UnboundedSender<Typed>,
) {
    let room = Arc::new(Semaphore::new(TYPED_AHEAD as usize));
    while let Some(Ok(message)) = client.next().await {
        let data = match message {
            Message::Binary(data) => data,
            Message::Text(text) => text.into(),
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Close(_) => return,
        };
        let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let weight = size.saturating_add(MESSAGE_BYTES).min(TYPED_AHEAD);
        let Ok(room) = room.clone().acquire_many_owned(weight).await else {
            return;
        };
        let typed = Typed { data, _room: room };
        if ahead.send(typed).is_err() {
            return;
        }
    }
}

/// Types all that comes; once the process has exited, its last output is on the way, and what is typed is nobody's.
async fn type_all(mut behind: UnboundedReceiver<Typed>, process: &Process) {
    while let Some(typed) = behind.recv().await {
        // A paste or a key's sequence is not to be torn by what others type.
        let _ = process.write_stdin_all(&typed.data).await;
    }
}
