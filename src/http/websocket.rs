//! WebSockets that end here.

use std::future::Future;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request};
use axum::response::Response;
use futures::{Sink, SinkExt, Stream, StreamExt};
use http::header;
use tokio::time::timeout;

use super::serve::Seat;
use super::{ApiError, ApiResult};
use crate::shutdown::Shutdown;

/// The longest message that is taken, and the longest frame.
const MAX_MESSAGE: usize = 1 << 20;
/// Bytes held of what the peer has not taken yet: one message, and what it takes beside its data.
const WRITE_BUFFER: usize = 2 * MAX_MESSAGE;
/// For the peer to take the Close frame.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// Takes up the handshake; `serve` then has the socket, as a task that the stop waits for.
pub async fn websocket<F>(
    request: Request,
    shutdown: &Shutdown,
    serve: impl FnOnce(WebSocket) -> F + Send + 'static,
) -> ApiResult<Response>
where
    F: Future<Output = ()> + Send + 'static,
{
    let wrong = || ApiError::bad_request("this route takes a WebSocket handshake");
    let asks = request
        .headers()
        .get(header::UPGRADE)
        .is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"));
    if !asks {
        return Err(wrong());
    }
    let (mut parts, _) = request.into_parts();
    let seat = parts.extensions.get::<Seat>().cloned();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &())
        .await
        .map_err(|_| wrong())?;
    let shutdown = shutdown.clone();
    Ok(upgrade
        .max_message_size(MAX_MESSAGE)
        .max_frame_size(MAX_MESSAGE)
        .write_buffer_size(0)
        .max_write_buffer_size(WRITE_BUFFER)
        .on_upgrade(async move |socket| {
            shutdown.spawn(async move {
                let _seat = seat;
                serve(socket).await;
            });
        }))
}

pub fn closing(code: u16, reason: impl Into<String>) -> CloseFrame {
    CloseFrame {
        code,
        reason: reason.into().into(),
    }
}

/// Says why it ends, and waits a little for the peer to have taken that.
pub async fn see_off(
    close: CloseFrame,
    to_peer: &mut (impl Sink<Message> + Unpin),
    from_peer: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
) {
    let farewell = async {
        if to_peer.send(Message::Close(Some(close))).await.is_ok() {
            // The peer answers with a Close frame of its own and hangs up.
            while from_peer.next().await.is_some() {}
        }
    };
    let _ = timeout(CLOSE_GRACE, farewell).await;
}
