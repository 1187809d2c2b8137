//! `GET /live/socket`, and how a live view's page is served.

use std::time::Duration;

use axum::{
    extract::{
        Request, State,
        ws::{CloseFrame, Message, WebSocket, close_code},
    },
    response::Response,
};
use bytes::Bytes;
use deserr::deserialize;
use futures::{
    Sink, SinkExt, Stream, StreamExt,
    future::{maybe_done, pending},
};
use tokio::time::{Instant, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::TAG;
use crate::{
    agent::{
        Agent,
        live::{FrameEvent, InputWorker, ViewerInbox, ViewerStream},
    },
    api::{ErrorBody, live::ViewerMessage},
    http::{ApiError, ApiResult, FieldErrors, closing, see_off, websocket},
};

/// At least this often the page is asked whether it is there, and something is sent, so that no proxy between takes the connection for dead.
const PING: Duration = Duration::from_secs(15);
/// A page that has not been heard of for so long is gone: it would have answered.
const SILENCE: Duration = Duration::from_secs(45);
/// For one message to be taken.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// For what was said before the end to be done.
const DONE_LIMIT: Duration = Duration::from_secs(1);

/// What the live view's page talks to
///
/// A WebSocket for the page that this agent serves, and for no other: what is said on it may change with any version. It ends with 1008
/// where it was used in another way.
#[utoipa::path(
    get,
    path = "/live/socket",
    operation_id = "live_view_socket",
    tag = TAG,
    responses(
        (status = 101, description = "pictures, what is told about the browser, and what the viewer does"),
        (status = 400, body = ErrorBody, description = "not a WebSocket handshake"),
        (status = 409, body = ErrorBody, description = "the browser has no display"),
        (status = 429, body = ErrorBody, description = "too many live views"),
    )
)]
pub async fn socket(State(agent): State<Agent>, request: Request) -> ApiResult<Response> {
    connect(&agent, request, true).await
}

pub async fn connect(agent: &Agent, request: Request, control: bool) -> ApiResult<Response> {
    let (stream, inbox, worker) = agent.live.open(control)?;
    let stop = agent.shutdown.token();
    websocket(request, &agent.shutdown, move |socket| {
        serve(socket, stream, inbox, worker, stop)
    })
    .await
}

/// Why it ends, where the page is there to be told.
type End = Option<CloseFrame>;

async fn serve(
    socket: WebSocket,
    mut stream: ViewerStream,
    mut inbox: ViewerInbox,
    mut worker: InputWorker,
    stop: CancellationToken,
) {
    let (mut to_page, mut from_page) = socket.split();
    let end = {
        let talking = async {
            let end = tokio::select! {
                end = show_all(&mut stream, &mut to_page) => end,
                end = hear_all(&mut from_page, &mut inbox) => end,
                () = stop.cancelled() => Some(closing(close_code::AWAY, "the agent is stopping")),
            };
            // Lets the worker end once its queue is empty.
            drop(inbox);
            end
        };
        let mut working = std::pin::pin!(maybe_done(worker.run()));
        let end = tokio::select! {
            // What was said and not heard yet comes before what follows from silence.
            biased;
            end = talking => end,
            () = async { working.as_mut().await; pending().await } => None,
        };
        let _ = timeout(DONE_LIMIT, working).await;
        end
    };
    // Its place is free, and nothing held, before it is seen off.
    drop((stream, worker));
    if let Some(close) = end {
        see_off(close, &mut to_page, &mut from_page).await;
    }
}

async fn show_all(stream: &mut ViewerStream, page: &mut (impl Sink<Message> + Unpin)) -> End {
    let mut ping = interval(PING);
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
        timeout(SEND_LIMIT, page.send(message)).await.ok()?.ok()?;
    }
}

async fn hear_all(
    page: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
    inbox: &mut ViewerInbox,
) -> End {
    let mut heard = Instant::now();
    loop {
        inbox.ready().await;
        let message = tokio::select! {
            message = page.next() => message?.ok()?,
            () = sleep_until(heard + SILENCE) => {
                return Some(closing(close_code::AWAY, "nothing was heard"));
            }
        };
        heard = Instant::now();
        let text = match message {
            Message::Text(text) => text,
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Binary(_) => {
                return Some(closing(close_code::UNSUPPORTED, "messages are JSON"));
            }
            Message::Close(_) => return None,
        };
        let said = match read(&text) {
            Ok(said) => said,
            Err(error) => return Some(closing(close_code::POLICY, told(&error))),
        };
        if let Err(refusal) = inbox.receive(said).await {
            return Some(closing(close_code::POLICY, refusal.to_string()));
        }
        // While it waited for what was said before nothing could be heard.
        heard = Instant::now();
    }
}

/// No error of these tells what was typed.
fn read(text: &str) -> ApiResult<ViewerMessage> {
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|_| ApiError::bad_request("messages are JSON"))?;
    Ok(deserialize::<ViewerMessage, _, FieldErrors>(value)?)
}

/// What fits into a Close frame.
fn told(error: &ApiError) -> String {
    const LONGEST: usize = 120;
    let body = error.body();
    let mut reason = match body.details.first() {
        Some(detail) => format!("{}: {}", detail.code, detail.message),
        None => body.message.clone(),
    };
    reason.truncate(reason.floor_char_boundary(LONGEST));
    reason
}
