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

/// The sizes of a WebSocket, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct WebSocketLimits {
    /// The longest message and frame that is received.
    pub max_message: usize,
    /// The size of the read buffer.
    pub read_buffer: usize,
    /// The bytes after which messages are written without a flush.
    pub write_buffer: usize,
    /// The most bytes in the write buffer.
    pub max_write_buffer: usize,
}

impl Default for WebSocketLimits {
    fn default() -> Self {
        const MAX_MESSAGE: usize = 1 << 20;
        Self {
            max_message: MAX_MESSAGE,
            read_buffer: 128 << 10,
            write_buffer: 0,
            // One message and as much again for control frames.
            max_write_buffer: 2 * MAX_MESSAGE,
        }
    }
}
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
    limits: WebSocketLimits,
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
        .max_message_size(limits.max_message)
        .max_frame_size(limits.max_message)
        .read_buffer_size(limits.read_buffer)
        .write_buffer_size(limits.write_buffer)
        .max_write_buffer_size(limits.max_write_buffer)
        .on_upgrade(async move |socket| {
            shutdown.spawn_connection(async move {
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
