//! The WebSocket of a DevTools client.
//!
//! ```text
//!            +-- receive: a message --> CdpSender ---+
//! client ----+                                       +---- Chromium
//!            +-- send: all that is ready <- CdpReceiver
//! ```

use std::{pin::pin, time::Duration};

use axum::{
    extract::{
        Request,
        ws::{Message, Utf8Bytes, WebSocket},
    },
    response::Response,
};
use futures::{Sink, SinkExt, Stream, StreamExt};
use metrics::counter;
use tokio::{
    task::yield_now,
    time::{Instant, timeout},
};

use crate::{
    agent::cdp_clients::{CdpClients, ClientPermit},
    http::{
        ApiResult, CloseCode, CloseReason, WebSocketLimits, accept_websocket, close_gracefully,
    },
    shutdown::Shutdown,
    system::cdp::multiplexer::{CdpReceiver, CdpSender, Disconnected, End},
};

/// The time between messages of a burst, well below that between calls and replies.
const BURST_GAP: Duration = Duration::from_micros(40);
/// The time for a client that is closing its connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest command, as long as Chromium accepts over a WebSocket.
pub(super) const MAX_COMMAND: usize = 100 << 20;
pub(super) const LIMITS: WebSocketLimits = WebSocketLimits {
    max_message: MAX_COMMAND,
    read_buffer: 32 << 10,
    write_buffer: 64 << 10,
    // The queue to the client is bounded.
    max_write_buffer: usize::MAX,
};

/// A connected client.
pub(super) struct CdpSocket {
    pub(super) connection: (CdpSender, CdpReceiver),
    pub(super) permit: ClientPermit,
    pub(super) clients: CdpClients,
    /// The generation of its Chromium.
    pub(super) generation: u64,
    pub(super) shutdown: Shutdown,
}

impl CdpSocket {
    /// Completes the handshake and serves the client as a task of `shutdown`.
    pub(super) async fn accept(self, request: Request) -> ApiResult<Response> {
        let shutdown = self.shutdown.clone();
        accept_websocket(request, &shutdown, LIMITS, |socket| self.serve(socket)).await
    }

    async fn serve(self, socket: WebSocket) {
        let Self {
            connection: (sender, receiver),
            permit,
            clients,
            generation,
            shutdown,
        } = self;
        let (mut to_client, mut from_client) = socket.split();
        let too_slow = receiver.too_slow();
        let close = {
            let mut receiving = pin!(receive(&mut from_client, &sender));
            tokio::select! {
                biased;
                // The shutdown also ends Chromium; the client gets the cause.
                () = shutdown.requested() => CloseReason::of_shutdown(&shutdown),
                reason = clients.wait_until_gone(generation) => {
                    CloseReason::new(CloseCode::BrowserRestarted, reason)
                }
                () = too_slow.cancelled() => too_slow_reason(),
                received = &mut receiving => match received {
                    Some(close) => close,
                    None => return,
                },
                sent = send(receiver, &mut to_client) => match sent {
                    Some(End::BrowserGone) => {
                        let reason = clients.wait_until_gone(generation).await;
                        CloseReason::new(CloseCode::BrowserRestarted, reason)
                    }
                    Some(End::TargetGone) => CloseReason::new(CloseCode::Done, "the tab was closed"),
                    Some(End::TooSlow) => too_slow_reason(),
                    None => {
                        // It may have sent a Close frame, which is answered.
                        let _ = timeout(CLOSE_TIMEOUT, receiving).await;
                        return;
                    }
                },
            }
        };
        // The session in Chromium ends before the client may come again.
        drop((sender, permit));
        close_gracefully(close, &mut to_client, &mut from_client).await;
    }
}

fn too_slow_reason() -> CloseReason {
    CloseReason::new(
        CloseCode::TooSlow,
        "the client reads its messages too slowly",
    )
}

/// Passes the client's messages on until it closes the connection. Returns a reason to close it.
async fn receive(
    client: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
    sender: &CdpSender,
) -> Option<CloseReason> {
    let messages = counter!("berth_cdp_messages_total", "to" => "chromium");
    let bytes = counter!("berth_cdp_bytes_total", "to" => "chromium");
    loop {
        match client.next().await {
            Some(Ok(Message::Text(text))) => {
                messages.increment(1);
                bytes.increment(text.len() as u64);
                if let Err(Disconnected) = sender.send(&text).await {
                    // The other direction knows the reason.
                    return std::future::pending().await;
                }
            }
            Some(Ok(Message::Binary(_))) => {
                let reason = "a binary message is not of the DevTools protocol";
                return Some(CloseReason::new(CloseCode::InvalidMessage, reason));
            }
            // The next read sends the reply to a Close frame.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_))) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

/// Sends what Chromium sends until the connection to it ends. Returns `None` if the client is gone.
async fn send(mut receiver: CdpReceiver, client: &mut (impl Sink<Message> + Unpin)) -> Option<End> {
    let messages = counter!("berth_cdp_messages_total", "to" => "client");
    let bytes = counter!("berth_cdp_bytes_total", "to" => "client");
    let mut flushed_at: Option<Instant> = None;
    loop {
        let mut next = match receiver.next().await {
            Ok(message) => Some(message),
            Err(end) => return Some(end),
        };
        // Within a burst, further messages are about to come and can be written together.
        if flushed_at.is_some_and(|at| at.elapsed() < BURST_GAP) {
            yield_now().await;
        }
        while let Some(message) = next {
            messages.increment(1);
            bytes.increment(message.len() as u64);
            // Chromium writes UTF-8.
            let text = Utf8Bytes::try_from(message).unwrap_or_default();
            client.feed(Message::Text(text)).await.ok()?;
            next = receiver.next_ready();
        }
        client.flush().await.ok()?;
        flushed_at = Some(Instant::now());
    }
}
