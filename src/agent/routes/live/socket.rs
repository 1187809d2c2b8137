//! `GET /live/socket`, and the connection that it shares with `GET /live/view/socket`.

use std::time::Duration;

use axum::{
    extract::{
        Request, State,
        ws::{Message, WebSocket},
    },
    response::Response,
};
use bytes::Bytes;
use futures::{
    Sink, SinkExt, Stream, StreamExt,
    future::{maybe_done, pending},
};
use tokio::time::{Instant, interval, timeout, timeout_at};

use super::TAG;
use crate::{
    agent::live::{FrameEvent, InputWorker, LiveViews, ViewerInbox, ViewerStream},
    api::{ErrorBody, live::ViewerMessage},
    http::{
        ApiError, ApiResult, CloseCode, CloseReason, WebSocketLimits, accept_websocket,
        close_gracefully, decode_json,
    },
    shutdown::Shutdown,
};

/// The interval of pings, which show whether the page is alive and keep proxies from closing an
/// idle connection.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// The time after which a silent page is considered gone: it would have responded to a ping.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(45);
/// The time that a page may take to receive one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// The time for input that was received before the end to be applied.
const INPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// Connect the live view
///
/// The WebSocket of the page that `/live` serves. Its protocol is internal to the page and may
/// change in any version. It ends with close code 1008 if a message is invalid.
#[utoipa::path(
    get,
    path = "/live/socket",
    operation_id = "connect_live_view",
    tag = TAG,
    responses(
        (status = 101, description = "Frames, the state of the browser, and the viewer's input"),
        (status = 400, body = ErrorBody, description = "The request is not a WebSocket handshake"),
        (status = 409, body = ErrorBody, description = "The browser has no display"),
        (status = 429, body = ErrorBody, description = "The limit of live views is reached"),
    )
)]
pub(crate) async fn socket(
    State(live): State<LiveViews>,
    State(shutdown): State<Shutdown>,
    request: Request,
) -> ApiResult<Response> {
    connect(&live, &shutdown, request, true).await
}

/// Serves a live view's page. With `control` it also forwards the viewer's input.
pub(crate) async fn connect(
    live: &LiveViews,
    shutdown: &Shutdown,
    request: Request,
    control: bool,
) -> ApiResult<Response> {
    let (stream, inbox, worker) = live.open(control)?;
    let stop = shutdown.clone();
    accept_websocket(
        request,
        shutdown,
        WebSocketLimits::default(),
        move |socket| serve(socket, stream, inbox, worker, stop),
    )
    .await
}

async fn serve(
    socket: WebSocket,
    mut stream: ViewerStream,
    mut inbox: ViewerInbox,
    mut worker: InputWorker,
    shutdown: Shutdown,
) {
    let (mut to_page, mut from_page) = socket.split();
    let reason = {
        let relaying = async {
            let reason = tokio::select! {
                reason = send_frames(&mut stream, &mut to_page) => reason,
                reason = receive_messages(&mut from_page, &mut inbox) => reason,
                () = shutdown.requested() => Some(CloseReason::of_shutdown(&shutdown)),
            };
            // Lets the worker end after the messages that it has received.
            drop(inbox);
            reason
        };
        let mut working = std::pin::pin!(maybe_done(worker.run()));
        let reason = tokio::select! {
            // Messages are received before the worker acts on a silent page.
            biased;
            reason = relaying => reason,
            () = async { working.as_mut().await; pending().await } => None,
        };
        let _ = timeout(INPUT_TIMEOUT, working).await;
        reason
    };
    // Frees the viewer's permit and releases held keys before the connection is closed.
    drop((stream, worker));
    if let Some(close) = reason {
        close_gracefully(close, &mut to_page, &mut from_page).await;
    }
}

/// Sends frames until the page is too slow. Returns `None` if it is gone.
async fn send_frames(
    stream: &mut ViewerStream,
    page: &mut (impl Sink<Message> + Unpin),
) -> Option<CloseReason> {
    let mut ping = interval(PING_INTERVAL);
    loop {
        let message = tokio::select! {
            event = stream.next() => match event {
                FrameEvent::Image(image) => Message::Binary(image.into()),
                FrameEvent::Message(message) => match serde_json::to_string(&message) {
                    Ok(text) => Message::Text(text.into()),
                    Err(_) => continue,
                },
            },
            _ = ping.tick() => Message::Ping(Bytes::new()),
        };
        if let Err(reason) = send_in_time(page, message, SEND_TIMEOUT).await {
            return reason;
        }
    }
}

/// Sends a message. Returns why the connection ends if that fails, `None` if the page is gone.
async fn send_in_time(
    page: &mut (impl Sink<Message> + Unpin),
    message: Message,
    send_timeout: Duration,
) -> Result<(), Option<CloseReason>> {
    match timeout(send_timeout, page.send(message)).await {
        Ok(sent) => sent.map_err(|_| None),
        Err(_) => Err(Some(too_slow("the page does not read"))),
    }
}

/// Receives messages until one is invalid or the page is silent. Returns `None` if it is gone.
async fn receive_messages(
    page: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
    inbox: &mut ViewerInbox,
) -> Option<CloseReason> {
    let mut received_at = Instant::now();
    loop {
        inbox.ready().await;
        let message = match receive_in_time(page, received_at + SILENCE_TIMEOUT).await {
            Ok(message) => message,
            Err(reason) => return reason,
        };
        received_at = Instant::now();
        let text = match message {
            Message::Text(text) => text,
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Binary(_) => {
                return Some(CloseReason::new(
                    CloseCode::InvalidMessage,
                    "messages must be JSON",
                ));
            }
            Message::Close(_) => return None,
        };
        let message = match parse(&text) {
            Ok(message) => message,
            Err(error) => return Some(invalid_message(&error)),
        };
        if let Err(error) = inbox.receive(message).await {
            return Some(CloseReason::new(
                CloseCode::InvalidMessage,
                error.to_string(),
            ));
        }
        // Nothing was read while the inbox was full, so that time does not count as silence.
        received_at = Instant::now();
    }
}

/// Receives a message. Returns why the connection ends if there is none until `deadline`, `None`
/// if the page is gone.
async fn receive_in_time(
    page: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
    deadline: Instant,
) -> Result<Message, Option<CloseReason>> {
    match timeout_at(deadline, page.next()).await {
        Ok(Some(Ok(message))) => Ok(message),
        Ok(_) => Err(None),
        Err(_) => Err(Some(too_slow("the page does not respond"))),
    }
}

/// Parses a message. Errors do not contain the viewer's input, which may be a secret.
fn parse(text: &str) -> ApiResult<ViewerMessage> {
    decode_json(text.as_bytes(), |_| {
        ApiError::bad_request("messages must be JSON")
    })
}

/// Returns the first detail of an error.
fn invalid_message(error: &ApiError) -> CloseReason {
    let body = error.body();
    let text = match body.details.first() {
        Some(detail) => format!("{}: {}", detail.code, detail.message),
        None => body.message.clone(),
    };
    CloseReason::new(CloseCode::InvalidMessage, text)
}

fn too_slow(text: &str) -> CloseReason {
    CloseReason::new(CloseCode::TooSlow, text)
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;

    use super::*;

    #[test]
    fn message_with_too_many_members_is_rejected() {
        let message = |count: usize| {
            let ignored = vec![0; count];
            serde_json::json!({"type": "text", "text": "a", "ignored": ignored}).to_string()
        };
        let reason = |text: &str| invalid_message(&parse(text).err().unwrap());
        let invalid = reason(&message(300_000));
        assert_eq!(invalid, reason("["));
        assert_ne!(invalid, reason("{}"));
    }

    fn ping() -> Message {
        Message::Ping(Bytes::new())
    }

    #[tokio::test]
    async fn page_that_does_not_read_is_too_slow() {
        let (mut page, unread) = mpsc::channel(1);
        assert_eq!(
            send_in_time(&mut page, ping(), Duration::ZERO).await,
            Ok(())
        );
        let ended = send_in_time(&mut page, ping(), Duration::ZERO).await;
        assert_eq!(ended, Err(Some(too_slow("the page does not read"))));
        drop(unread);
        assert_eq!(
            send_in_time(&mut page, ping(), Duration::ZERO).await,
            Err(None)
        );
    }

    #[tokio::test]
    async fn silent_page_is_too_slow() {
        let (mut page, mut messages) = mpsc::channel(1);
        page.try_send(Ok(ping())).unwrap();
        let received = receive_in_time(&mut messages, Instant::now()).await;
        assert_eq!(received, Ok(ping()));
        let ended = receive_in_time(&mut messages, Instant::now()).await;
        assert_eq!(ended, Err(Some(too_slow("the page does not respond"))));
        drop(page);
        let ended = receive_in_time(&mut messages, Instant::now()).await;
        assert_eq!(ended, Err(None));
    }
}
