//! Chromium's own WebSocket as a client: one connection for each script worker.

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

use crate::system::script::protocol::MAX_PAYLOAD;

/// Chromium accepts at once or is not there any more.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Memory that every connection holds, worker by worker; messages beyond it grow the buffer while they last.
const READ_BUFFER: usize = 16 << 10;

#[derive(Debug, thiserror::Error)]
pub enum CdpSocketError {
    #[error("cannot reach Chromium's DevTools: {0}")]
    Connect(#[from] io::Error),
    #[error("Chromium's DevTools did not answer in time")]
    Timeout,
    #[error("Chromium's DevTools connection broke: {0}")]
    WebSocket(Box<tungstenite::Error>),
    #[error("the browser sent a message of over {} MiB", MAX_PAYLOAD >> 20)]
    TooLong(Box<tungstenite::Error>),
    #[error("a message to Chromium is not UTF-8")]
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

pub struct CdpSender(SplitSink<WebSocketStream<TcpStream>, Message>);
pub struct CdpReceiver(SplitStream<WebSocketStream<TcpStream>>);

/// Connects to a DevTools WebSocket, e.g. `/devtools/browser/<uuid>`.
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
        let url = format!("ws://{addr}{path}");
        let (socket, _) = client_async_with_config(url, stream, Some(config)).await?;
        Ok::<_, CdpSocketError>(socket)
    };
    let socket = tokio::time::timeout(CONNECT_TIMEOUT, connect)
        .await
        .map_err(|_| CdpSocketError::Timeout)??;
    let (sender, receiver) = socket.split();
    Ok((CdpSender(sender), CdpReceiver(receiver)))
}

impl CdpSender {
    pub async fn send(&mut self, text: Bytes) -> Result<(), CdpSocketError> {
        let text = Utf8Bytes::try_from(text).map_err(|_| CdpSocketError::NotText)?;
        Ok(self.0.send(Message::Text(text)).await?)
    }
}

impl CdpReceiver {
    /// The next message; `None` once Chromium has closed the connection. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CdpSocketError> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Ok(Some(text.into())),
                Some(Ok(Message::Close(_))) | None => return Ok(None),
                // Pings are answered by the library; the DevTools protocol has no binary messages.
                Some(Ok(_)) => {}
                Some(Err(err)) => return Err(err.into()),
            }
        }
    }
}
