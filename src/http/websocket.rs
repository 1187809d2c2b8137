//! WebSockets that end here.

use std::future::Future;

use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request};
use axum::response::Response;
use http::header;

use super::serve::Seat;
use super::{ApiError, ApiResult};
use crate::shutdown::Shutdown;

/// The longest message that is taken, and the longest frame.
const MAX_MESSAGE: usize = 1 << 20;
/// Bytes held of what the peer has not taken yet: beyond that, sending waits.
const WRITE_BUFFER: usize = 128 << 10;

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
        .max_write_buffer_size(WRITE_BUFFER.max(2 * MAX_MESSAGE))
        .on_upgrade(async move |socket| {
            shutdown.spawn(async move {
                let _seat = seat;
                serve(socket).await;
            });
        }))
}
