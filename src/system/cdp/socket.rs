//! A DevTools WebSocket that passes messages as text: one connection for each script worker.

use std::{io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{self, Message, Utf8Bytes, protocol::WebSocketConfig},
};

use super::long_events::WithoutLongEvents;
use crate::system::script::protocol::MAX_PAYLOAD;

/// The timeout of a connection. A running Chromium accepts at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The initial buffer size of each connection. Longer messages grow the buffer temporarily.
const READ_BUFFER: usize = 16 << 10;

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum CdpSocketError {
    #[error("cannot connect to DevTools: {0}")]
    Connect(#[from] io::Error),
    #[error("DevTools did not answer within {} s", CONNECT_TIMEOUT.as_secs())]
    Timeout,
    #[error("the DevTools connection failed: {0}")]
    WebSocket(Box<tungstenite::Error>),
    /// The message is a reply. Longer events are dropped.
    #[error("the browser sent a reply over {} MiB", MAX_PAYLOAD >> 20)]
    TooLong(Box<tungstenite::Error>),
    #[error("the message to Chromium is not UTF-8")]
    NotText,
}

impl From<tungstenite::Error> for CdpSocketError {
    fn from(err: tungstenite::Error) -> Self {
        match err {
            tungstenite::Error::Capacity(_) => CdpSocketError::TooLong(Box::new(err)),
            err => CdpSocketError::WebSocket(Box::new(err)),
        }
    }
}

/// The sending half of a connection.
pub struct CdpSender(SplitSink<WebSocketStream<WithoutLongEvents>, Message>);
/// The receiving half of a connection.
pub struct CdpReceiver(SplitStream<WebSocketStream<WithoutLongEvents>>);

/// Connects to a DevTools WebSocket, such as `/devtools/browser/<uuid>`.
pub async fn connect(
    addr: SocketAddr,
    path: &str,
) -> Result<(CdpSender, CdpReceiver), CdpSocketError> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_PAYLOAD))
        .max_frame_size(Some(MAX_PAYLOAD));
    let connect = async {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let stream = WithoutLongEvents::new(stream, READ_BUFFER, MAX_PAYLOAD);
        let url = format!("ws://{addr}{path}");
        let (mut socket, _) = client_async_with_config(url, stream, Some(config)).await?;
        socket.get_mut().start();
        Ok::<_, CdpSocketError>(socket)
    };
    let socket = tokio::time::timeout(CONNECT_TIMEOUT, connect)
        .await
        .map_err(|_| CdpSocketError::Timeout)??;
    let (sender, receiver) = socket.split();
    Ok((CdpSender(sender), CdpReceiver(receiver)))
}

impl CdpSender {
    /// Sends a message.
    pub async fn send(&mut self, text: Bytes) -> Result<(), CdpSocketError> {
        let text = Utf8Bytes::try_from(text).map_err(|_| CdpSocketError::NotText)?;
        Ok(self.0.send(Message::Text(text)).await?)
    }
}

impl CdpReceiver {
    /// Waits for the next message. Returns `None` after Chromium has closed the connection.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CdpSocketError> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Ok(Some(text.into())),
                Some(Ok(Message::Close(_))) | None => return Ok(None),
                // The library answers pings, and the DevTools protocol has no binary messages.
                Some(Ok(_)) => {}
                Some(Err(err)) => return Err(err.into()),
            }
        }
    }
}
