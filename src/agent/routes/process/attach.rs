//! `GET /process/{process_id}/attach`.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a semaphore bounds the queue in bytes"
)]

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{
        Request, State,
        ws::{Message, WebSocket},
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

use super::{TAG, find};
use crate::{
    agent::process::{Process, Processes, WRITE_TIMEOUT},
    api::{ErrorBody, ids::ProcessId, process::ProcessEvent},
    http::{
        ApiError, ApiResult, CloseCode, CloseReason, Path, WebSocketLimits, accept_websocket,
        close_gracefully,
    },
    shutdown::Shutdown,
    streams::{Entry, Reader, StartAt},
};

/// The interval of pings, which keep proxies from closing an idle connection.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Bytes that are received from a client before the terminal has read them: the size limit of one
/// message.
const MAX_BUFFERED_INPUT: u32 = 1 << 20;
/// The memory that a buffered message takes besides its data, in bytes.
const MESSAGE_OVERHEAD: u32 = 64;

/// Attach to the terminal of a process
///
/// A WebSocket that transfers the terminal's bytes both ways in binary messages; text messages are
/// accepted as input as well. A client receives the stored output, then new output as it comes. Any
/// number of clients may attach.
///
/// The connection ends with close code 1000 when the process has exited, and with 4008 if the
/// client falls behind the stored output: attaching again shows the current output.
#[utoipa::path(
    get,
    path = "/process/{process_id}/attach",
    operation_id = "attach_process",
    tag = TAG,
    params(("process_id" = ProcessId, Path, description = "The id of the process", example = "3f0c6a52-9d1e-4b7a-8c55-6f2d1e0b9a47")),
    responses(
        (status = 101, description = "The terminal's bytes"),
        (status = 400, body = ErrorBody, description = "The process has no terminal, or the request is not a WebSocket handshake"),
        (status = 404, body = ErrorBody, description = "The process does not exist"),
    )
)]
pub(crate) async fn attach(
    State(processes): State<Processes>,
    State(shutdown): State<Shutdown>,
    Path(id): Path<ProcessId>,
    request: Request,
) -> ApiResult<Response> {
    let process = find(&processes, &id)?;
    if !process.has_terminal() {
        return Err(ApiError::bad_request("the process has no terminal"));
    }
    let stop = shutdown.clone();
    accept_websocket(request, &shutdown, WebSocketLimits::default(), |socket| {
        serve(socket, process, stop)
    })
    .await
}

async fn serve(socket: WebSocket, process: Arc<Process>, shutdown: Shutdown) {
    let (mut to_client, mut from_client) = socket.split();
    let output = process.output(StartAt::Oldest);
    let close = {
        let mut input = std::pin::pin!(forward_input(&mut from_client, &process));
        let close = tokio::select! {
            close = send_output(output, &mut to_client) => close,
            () = &mut input => return,
            () = shutdown.requested() => Some(CloseReason::of_shutdown(&shutdown)),
        };
        let Some(close) = close else {
            // Input that the client sent before it disconnected is still written.
            let _ = timeout(WRITE_TIMEOUT, input).await;
            return;
        };
        close
    };
    close_gracefully(close, &mut to_client, &mut from_client).await;
}

/// Sends the output until it ends. Returns `None` if the client is gone.
async fn send_output(
    mut output: Reader<Arc<ProcessEvent>>,
    client: &mut (impl Sink<Message> + Unpin),
) -> Option<CloseReason> {
    let mut ping = interval(PING_INTERVAL);
    loop {
        let entry = tokio::select! {
            entry = output.next() => entry,
            _ = ping.tick() => {
                client.send(Message::Ping(Bytes::new())).await.ok()?;
                continue;
            }
        };
        let event = match entry {
            Some(Entry::Item { item, .. }) => item,
            Some(Entry::Gap { .. }) => {
                let reason = "output was dropped before it was sent; attach again";
                return Some(CloseReason::new(CloseCode::TooSlow, reason));
            }
            None => return Some(CloseReason::new(CloseCode::Done, "")),
        };
        if let Some(code) = event.exit_code {
            let reason = format!("exited with {code}");
            return Some(CloseReason::new(CloseCode::Done, reason));
        }
        if let Some(data) = &event.data_b64 {
            let sent = client.send(Message::Binary(data.0.clone())).await;
            sent.ok()?;
        }
    }
}

/// Writes the client's messages to the terminal until the client is gone, which is noticed even
/// while the terminal does not read.
async fn forward_input(
    client: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
    process: &Process,
) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut writing = std::pin::pin!(write_input(receiver, process));
    tokio::select! {
        () = receive_input(client, sender) => {}
        // Ends only after the sender is dropped.
        () = &mut writing => return,
    }
    // The next read responds to the client's Close frame.
    let close = async { while client.next().await.is_some() {} };
    let _ = timeout(WRITE_TIMEOUT, join(writing, close)).await;
}

/// A message that is not yet written, and its share of [`MAX_BUFFERED_INPUT`].
struct InputMessage {
    data: Bytes,
    _permit: OwnedSemaphorePermit,
}

/// Receives the client's messages until it closes the connection or is gone.
async fn receive_input(
    client: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
    // Bounded by the semaphore below, in bytes.
    sender: UnboundedSender<InputMessage>,
) {
    let buffer = Arc::new(Semaphore::new(MAX_BUFFERED_INPUT as usize));
    while let Some(Ok(message)) = client.next().await {
        let data = match message {
            Message::Binary(data) => data,
            Message::Text(text) => text.into(),
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Close(_) => return,
        };
        let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let weight = size
            .saturating_add(MESSAGE_OVERHEAD)
            .min(MAX_BUFFERED_INPUT);
        let Ok(permit) = buffer.clone().acquire_many_owned(weight).await else {
            return;
        };
        let message = InputMessage {
            data,
            _permit: permit,
        };
        if sender.send(message).is_err() {
            return;
        }
    }
}

/// Writes all messages to the terminal. Once the process has exited, they are discarded.
async fn write_input(mut receiver: UnboundedReceiver<InputMessage>, process: &Process) {
    while let Some(message) = receiver.recv().await {
        // A paste, or the sequence of a key, must not be interleaved with the input of others.
        let _ = process.write_stdin_all(&message.data).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;

    use super::*;
    use crate::{
        api::process::OutputStream,
        streams::{Bounds, Log},
    };

    #[tokio::test]
    async fn client_that_falls_behind_the_retained_output_is_too_slow() {
        let log = Log::new(Bounds {
            entries: 2,
            weight: 100,
        });
        let reader = log.reader(StartAt::Oldest);
        for number in 0..5 {
            let output = ProcessEvent::output(OutputStream::Stdout, Bytes::from(vec![number]));
            log.append(output, 1);
        }
        let (mut client, _messages) = mpsc::channel(8);
        let reason = send_output(reader, &mut client).await;
        let dropped = "output was dropped before it was sent; attach again";
        assert_eq!(reason, Some(CloseReason::new(CloseCode::TooSlow, dropped)));
    }
}
