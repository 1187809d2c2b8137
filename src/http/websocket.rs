//! WebSockets that end at this server.

use std::{future::Future, time::Duration};

use axum::{
    extract::{
        FromRequestParts, Request,
        ws::{Message, WebSocket, WebSocketUpgrade},
    },
    response::Response,
};
use futures::{Sink, SinkExt, Stream, StreamExt};
use http::{Method, header};
use hyper::upgrade::OnUpgrade;
use tokio::time::timeout;

use super::{ApiError, ApiResult, CloseReason, connections::ConnectionPermit};
use crate::shutdown::Shutdown;

/// Size limit of a message and of a frame, in bytes.
const MAX_MESSAGE: usize = 1 << 20;
/// Size limit of the write buffer, in bytes: one message and as much again for control frames.
const WRITE_BUFFER: usize = 2 * MAX_MESSAGE;
/// Time a peer has to acknowledge a Close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns whether the request is a WebSocket handshake: a GET that can be upgraded and offers the
/// protocol.
///
/// Other protocols in `Upgrade` are offers, which a server may ignore (RFC 9110, section 7.8).
pub fn is_websocket_upgrade<B>(request: &http::Request<B>) -> bool {
    request.method() == Method::GET
        && request.extensions().get::<OnUpgrade>().is_some()
        && request
            .headers()
            .get(header::UPGRADE)
            .is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Accepts a WebSocket handshake and runs `serve` with the socket, as a task of `shutdown`.
///
/// # Errors
/// Returns 400 if the request is not a valid WebSocket handshake.
pub async fn accept_websocket<F>(
    request: Request,
    shutdown: &Shutdown,
    serve: impl FnOnce(WebSocket) -> F + Send + 'static,
) -> ApiResult<Response>
where
    F: Future<Output = ()> + Send + 'static,
{
    if !is_websocket_upgrade(&request) {
        return Err(ApiError::websocket_required());
    }
    let (mut parts, _) = request.into_parts();
    let permit = parts.extensions.get::<ConnectionPermit>().cloned();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &())
        .await
        .map_err(|_| ApiError::websocket_required())?;
    let shutdown = shutdown.clone();
    Ok(upgrade
        .max_message_size(MAX_MESSAGE)
        .max_frame_size(MAX_MESSAGE)
        .write_buffer_size(0)
        .max_write_buffer_size(WRITE_BUFFER)
        .on_upgrade(async move |socket| {
            shutdown.spawn(async move {
                let _permit = permit;
                serve(socket).await;
            });
        }))
}

/// Sends a Close frame and waits for the peer to close, for [`CLOSE_TIMEOUT`] at most.
pub async fn close_gracefully(
    reason: CloseReason,
    to_peer: &mut (impl Sink<Message> + Unpin),
    from_peer: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
) {
    let handshake = async {
        let close = Message::Close(Some(reason.into()));
        if to_peer.send(close).await.is_ok() {
            // The peer replies with its own Close frame and ends the connection.
            while from_peer.next().await.is_some() {}
        }
    };
    let _ = timeout(CLOSE_TIMEOUT, handshake).await;
}
