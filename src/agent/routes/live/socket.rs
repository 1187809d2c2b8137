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
use futures::{Sink, SinkExt, Stream, StreamExt};
use tokio::time::{Instant, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::TAG;
use crate::{
    agent::{
        Agent,
        live::{Hands, Shot, Show},
    },
    api::{ErrorBody, live::ViewerMessage},
    http::{ApiError, ApiResult, FieldErrors, websocket},
};

/// At least this often the page is asked whether it is there, and something is sent, so that no proxy between takes the connection for dead.
const PING: Duration = Duration::from_secs(15);
/// A page that has not been heard of for so long is gone: it would have answered.
const SILENCE: Duration = Duration::from_secs(45);
/// For one message to be taken.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// For the page to take the Close frame.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

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
    let (show, hands) = agent.live.enter(control)?;
    let stop = agent.shutdown.token();
    websocket(request, &agent.shutdown, move |socket| {
        serve(socket, show, hands, stop)
    })
    .await
}

/// Why it ends, where the page is there to be told.
type End = Option<CloseFrame>;

async fn serve(socket: WebSocket, mut show: Show, mut hands: Hands, stop: CancellationToken) {
    let (mut to_page, mut from_page) = socket.split();
    let end = tokio::select! {
        end = show_all(&mut show, &mut to_page) => end,
        end = hear_all(&mut from_page, &mut hands) => end,
        () = stop.cancelled() => closing(close_code::AWAY, "the agent is stopping"),
    };
    // Its place is free, and nothing held, before it is seen off.
    drop((show, hands));
    let Some(close) = end else { return };
    let farewell = async {
        to_page.send(Message::Close(Some(close))).await?;
        // The page answers with a Close frame of its own and hangs up.
        while from_page.next().await.is_some() {}
        Ok::<_, axum::Error>(())
    };
    let _ = timeout(CLOSE_GRACE, farewell).await;
}

fn closing(code: u16, reason: impl Into<String>) -> End {
    Some(CloseFrame {
        code,
        reason: reason.into().into(),
    })
}

async fn show_all(show: &mut Show, page: &mut (impl Sink<Message> + Unpin)) -> End {
    let mut ping = interval(PING);
    loop {
        let message = tokio::select! {
            shot = show.next() => match shot {
                Shot::Picture(picture) => Message::Binary(picture.into()),
                Shot::Message(message) => match serde_json::to_string(&message) {
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
    hands: &mut Hands,
) -> End {
    let mut heard = Instant::now();
    loop {
        let message = tokio::select! {
            message = page.next() => message?.ok()?,
            () = sleep_until(heard + SILENCE) => return closing(close_code::AWAY, "nothing was heard"),
        };
        heard = Instant::now();
        let text = match message {
            Message::Text(text) => text,
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Binary(_) => return closing(close_code::UNSUPPORTED, "messages are JSON"),
            Message::Close(_) => return None,
        };
        let said = match read(&text) {
            Ok(said) => said,
            Err(error) => return closing(close_code::POLICY, told(&error)),
        };
        if let Err(refusal) = hands.take(said).await {
            return closing(close_code::POLICY, refusal.to_string());
        }
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
