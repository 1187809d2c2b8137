//! A WebSocket client, with calls of DevTools methods.

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, client_async, connect_async,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest,
        handshake::client::Request,
        http::HeaderValue,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

use super::{agent::TOKEN, wait::in_time};

fn with_token(url: &str) -> Result<Request, Error> {
    let mut request = url.into_client_request()?;
    let bearer = format!("Bearer {TOKEN}");
    request.headers_mut().insert(
        "authorization",
        HeaderValue::from_str(&bearer).expect("a header"),
    );
    Ok(request)
}

fn with_protocol(url: &str, protocol: &str) -> Request {
    let mut request = with_token(url).expect("an address");
    request.headers_mut().insert(
        "sec-websocket-protocol",
        HeaderValue::from_str(protocol).expect("a header"),
    );
    request
}

pub struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    next_id: u64,
}

impl Client {
    pub async fn connect(url: &str) -> Self {
        Self::try_connect(url)
            .await
            .expect("the handshake succeeds")
    }

    pub async fn try_connect(url: &str) -> Result<Self, Error> {
        let request = with_token(url)?;
        let (socket, _) = in_time("a handshake", connect_async(request)).await?;
        Ok(Self { socket, next_id: 0 })
    }

    /// Connects with a subprotocol, which the server must accept.
    pub async fn connect_with_protocol(url: &str, protocol: &str) -> Self {
        let connected = Self::try_connect_with_protocol(url, protocol).await;
        connected.expect("the handshake succeeds")
    }

    pub async fn try_connect_with_protocol(url: &str, protocol: &str) -> Result<Self, Error> {
        let request = with_protocol(url, protocol);
        let (socket, response) = in_time("a handshake", connect_async(request)).await?;
        assert_eq!(response.headers()["sec-websocket-protocol"], protocol);
        Ok(Self { socket, next_id: 0 })
    }

    /// Connects with a subprotocol, which the server must refuse, and returns the body of the
    /// response.
    pub async fn refused_with_protocol(url: &str, protocol: &str) -> String {
        match in_time("a handshake", connect_async(with_protocol(url, protocol))).await {
            Err(Error::Http(response)) => {
                assert_eq!(response.status(), 400);
                let body = response.into_body().unwrap_or_default();
                String::from_utf8(body).expect("text")
            }
            other => panic!("expected a refusal, received {:?}", other.err()),
        }
    }

    /// Whether the next message is a ping, which is answered.
    pub async fn next_is_ping(&mut self) -> bool {
        let next = in_time("a message", self.socket.next()).await;
        matches!(next, Some(Ok(Message::Ping(_))))
    }

    /// Connects with a small receive buffer, so that unread messages block the sender early.
    pub async fn connect_with_small_buffer(url: &str) -> Self {
        let request = with_token(url).expect("an address");
        let authority = request.uri().authority().expect("an authority").clone();
        let address = authority.as_str().parse().expect("an address by number");
        let socket = TcpSocket::new_v4().expect("a socket");
        // Set before connecting: the window that is announced to the peer then never grows.
        socket.set_recv_buffer_size(4096).expect("a smaller buffer");
        let handshake = async {
            let stream = socket.connect(address).await?;
            client_async(request, MaybeTlsStream::Plain(stream)).await
        };
        let (socket, _) = in_time("a handshake", handshake)
            .await
            .expect("the handshake succeeds");
        Self { socket, next_id: 0 }
    }

    pub async fn send_text(&mut self, text: String) {
        in_time("sending", self.socket.send(Message::Text(text.into())))
            .await
            .expect("it can be sent");
    }

    /// Returns the next text message.
    pub async fn next_text(&mut self) -> String {
        loop {
            match in_time("a message", self.socket.next()).await {
                Some(Ok(Message::Text(text))) => return text.as_str().to_owned(),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("expected text, received {other:?}"),
            }
        }
    }

    pub async fn send_bytes(&mut self, bytes: Vec<u8>) {
        in_time("sending", self.socket.send(Message::Binary(bytes.into())))
            .await
            .expect("it can be sent");
    }

    /// Returns the next binary message, or the close code and reason at the end.
    pub async fn next_bytes(&mut self) -> Result<Vec<u8>, (u16, String)> {
        match self.next_message().await? {
            Message::Binary(bytes) => Ok(bytes.into()),
            other => panic!("expected bytes, received {other:?}"),
        }
    }

    /// Returns the next text or binary message, or the close code and reason at the end.
    pub async fn next_message(&mut self) -> Result<Message, (u16, String)> {
        loop {
            match in_time("a message", self.socket.next()).await {
                Some(Ok(message @ (Message::Binary(_) | Message::Text(_)))) => return Ok(message),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(Some(frame)))) => {
                    return Err((frame.code.into(), frame.reason.as_str().to_owned()));
                }
                // RFC 6455: the connection ended without a Close frame.
                None | Some(Err(Error::Io(_) | Error::Protocol(_))) => {
                    return Err((1006, String::new()));
                }
                other => panic!("expected a message, received {other:?}"),
            }
        }
    }

    /// Reads until the received bytes contain `expected`, and returns all of them.
    pub async fn bytes_until(&mut self, expected: &str) -> String {
        let mut received = Vec::new();
        loop {
            match self.next_bytes().await {
                Ok(bytes) => received.extend(bytes),
                Err(close) => panic!(
                    "closed with {close:?} before {expected:?} after {}",
                    String::from_utf8_lossy(&received)
                ),
            }
            let text = String::from_utf8_lossy(&received);
            if text.contains(expected) {
                return text.into_owned();
            }
        }
    }

    /// Sends a Close frame and waits for the peer's; messages before it are discarded.
    pub async fn close(mut self) {
        let close = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        in_time("sending", self.socket.close(Some(close)))
            .await
            .expect("it can be sent");
        assert!(self.closed().await.is_some(), "the peer closes");
    }

    /// Calls a method and returns its complete response.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.start_call(method, params).await;
        self.response(id).await
    }

    /// Calls a method without awaiting its response; see [`Self::response`].
    pub async fn start_call(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        let call = json!({"id": id, "method": method, "params": params});
        self.send_text(call.to_string()).await;
        id
    }

    /// The answer to a call; those to earlier ones that received before it are lost.
    pub async fn response(&mut self, id: u64) -> Value {
        loop {
            let message: Value =
                serde_json::from_str(&self.next_text().await).expect("DevTools speaks JSON");
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Reads until the connection ends; returns its Close frame if there is one.
    pub async fn closed(mut self) -> Option<CloseFrame> {
        loop {
            match in_time("the end", self.socket.next()).await {
                Some(Ok(Message::Close(frame))) => return frame,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }
}
