//! Tunnels: upgraded connections that are relayed to another server.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, extract::Request};
use berth::{
    http::{ApiError, CloseCode, CloseReason, ConnectionLimits, tunnel::Tunnel},
    shutdown::Shutdown,
};
use futures::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{
        Message,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role},
    },
};

const DEADLINE: Duration = Duration::from_secs(10);

type Client = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Starts a server on loopback that reads a request's head and hands the connection to `serve`.
async fn upstream<F>(serve: impl Fn(String, TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            tokio::spawn(serve(String::from_utf8(head).unwrap(), stream));
        }
    });
    addr
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

async fn accept(head: &str, stream: &mut TcpStream) {
    let key = header(head, "sec-websocket-key").unwrap();
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n\r\n",
        derive_accept_key(key.as_bytes())
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
}

async fn websocket(head: &str, mut stream: TcpStream) -> WebSocketStream<TcpStream> {
    accept(head, &mut stream).await;
    WebSocketStream::from_raw_socket(stream, Role::Server, None).await
}

struct Front {
    addr: SocketAddr,
    shutdown: Shutdown,
    /// Receives a message when a tunnel has ended.
    ended: mpsc::UnboundedReceiver<()>,
}

struct NotifyOnDrop(mpsc::UnboundedSender<()>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

impl Front {
    async fn start(upstream: SocketAddr) -> Self {
        let shutdown = Shutdown::new();
        let (sender, ended) = mpsc::unbounded_channel();
        let stop = shutdown.clone();
        let app = Router::new().fallback(move |mut request: Request| async move {
            let tunnel = Tunnel::to(upstream, "/elsewhere?a=b")
                .on_upstream_closed(|| CloseReason::new(CloseCode::Failed, "the upstream has died"))
                .hold(NotifyOnDrop(sender));
            tunnel
                .open(&mut request, &stop)
                .await
                .map_err(|error| ApiError::bad_gateway(error.to_string()))
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let serving = shutdown.clone();
        tokio::spawn(async move {
            berth::http::serve(listener, app, ConnectionLimits::new(1000), &serving)
                .await
                .unwrap()
        });
        Self {
            addr,
            shutdown,
            ended,
        }
    }

    async fn connect(&self) -> Client {
        connect_async(format!("ws://{}/", self.addr))
            .await
            .unwrap()
            .0
    }

    async fn tunnel_ended(&mut self) {
        timeout(DEADLINE, self.ended.recv())
            .await
            .expect("the tunnel ends")
            .unwrap();
    }
}

async fn next(
    client: &mut Client,
) -> Option<Result<Message, tokio_tungstenite::tungstenite::Error>> {
    timeout(DEADLINE, client.next())
        .await
        .expect("a message arrives in time")
}

fn close_of(message: Option<Result<Message, tokio_tungstenite::tungstenite::Error>>) -> CloseFrame {
    match message {
        Some(Ok(Message::Close(Some(frame)))) => frame,
        other => panic!("not a Close frame with a reason: {other:?}"),
    }
}

#[tokio::test]
async fn messages_of_all_sizes_are_relayed_unchanged() {
    let upstream = upstream(|head, stream| async move {
        assert!(
            head.starts_with("GET /elsewhere?a=b HTTP/1.1\r\n"),
            "{head}"
        );
        let mut socket = websocket(&head, stream).await;
        while let Some(Ok(message)) = socket.next().await {
            if message.is_close() {
                break;
            }
            socket.send(message).await.unwrap();
        }
    })
    .await;
    let mut front = Front::start(upstream).await;
    let mut client = front.connect().await;
    for size in (0..1000).chain([125, 126, 65535, 65536, 4 << 20]) {
        let message = Message::binary(vec![size as u8; size]);
        client.send(message.clone()).await.unwrap();
        assert_eq!(next(&mut client).await.unwrap().unwrap(), message);
    }
    client.close(None).await.unwrap();
    front.tunnel_ended().await;
}

#[tokio::test]
async fn refusal_of_the_upstream_is_relayed_unchanged() {
    let upstream = upstream(|_, mut stream| async move {
        let refusal = "HTTP/1.1 409 Conflict\r\nX-Why: busy\r\nContent-Length: 4\r\n\r\nbusy";
        stream.write_all(refusal.as_bytes()).await.unwrap();
    })
    .await;
    let front = Front::start(upstream).await;
    let error = connect_async(format!("ws://{}/", front.addr))
        .await
        .unwrap_err();
    let tokio_tungstenite::tungstenite::Error::Http(response) = error else {
        panic!("{error:?}")
    };
    assert_eq!(response.status(), 409);
    assert_eq!(response.headers()["x-why"], "busy");
    assert_eq!(response.body().as_deref(), Some(b"busy".as_slice()));
}

#[tokio::test]
async fn request_without_upgrade_opens_no_tunnel() {
    let upstream = upstream(|_, _| async { panic!("the upstream is not contacted") }).await;
    let front = Front::start(upstream).await;
    let response = reqwest::get(format!("http://{}/", front.addr))
        .await
        .unwrap();
    assert_eq!(response.status(), 502);
}

#[tokio::test]
async fn client_gets_a_close_frame_when_the_upstream_dies() {
    let upstream = upstream(|head, stream| async move {
        let mut socket = websocket(&head, stream).await;
        socket.send(Message::text("last words")).await.unwrap();
        // Dropped without a Close frame, like a killed process.
    })
    .await;
    let mut front = Front::start(upstream).await;
    let mut client = front.connect().await;
    assert_eq!(
        next(&mut client).await.unwrap().unwrap(),
        Message::text("last words")
    );
    let close = close_of(next(&mut client).await);
    assert_eq!(
        (u16::from(close.code), close.reason.as_str()),
        (1011, "the upstream has died")
    );
    assert!(next(&mut client).await.is_none());
    front.tunnel_ended().await;
}

#[tokio::test]
async fn truncated_message_is_not_an_orderly_close() {
    let upstream = upstream(|head, mut stream| async move {
        accept(&head, &mut stream).await;
        // A frame of ten bytes, of which three are sent.
        stream.write_all(&[0x82, 10, 1, 2, 3]).await.unwrap();
    })
    .await;
    let mut front = Front::start(upstream).await;
    let mut client = front.connect().await;
    let end = next(&mut client).await;
    assert!(matches!(end, Some(Err(_))), "{end:?}");
    front.tunnel_ended().await;
}

#[tokio::test]
async fn close_frame_of_the_upstream_is_relayed_once() {
    let upstream = upstream(|head, stream| async move {
        let mut socket = websocket(&head, stream).await;
        let frame = CloseFrame {
            code: 4000.into(),
            reason: "enough".into(),
        };
        socket.close(Some(frame)).await.unwrap();
        while socket.next().await.is_some() {}
    })
    .await;
    let mut front = Front::start(upstream).await;
    let mut client = front.connect().await;
    let close = close_of(next(&mut client).await);
    assert_eq!(
        (u16::from(close.code), close.reason.as_str()),
        (4000, "enough")
    );
    assert!(next(&mut client).await.is_none());
    front.tunnel_ended().await;
}

#[tokio::test]
async fn shutdown_closes_every_tunnel_with_a_reason() {
    let upstream = upstream(|head, stream| async move {
        let mut socket = websocket(&head, stream).await;
        // Frames follow each other closely, so that the Close frame must wait for a boundary.
        while socket.send(Message::binary(vec![7; 100_000])).await.is_ok() {}
    })
    .await;
    let front = Front::start(upstream).await;
    let mut client = front.connect().await;
    next(&mut client).await.unwrap().unwrap();
    front.shutdown.request();
    let close = loop {
        match next(&mut client).await {
            Some(Ok(Message::Binary(bytes))) => assert_eq!(bytes.len(), 100_000),
            other => break close_of(other),
        }
    };
    assert_eq!(
        (u16::from(close.code), close.reason.as_str()),
        (1001, "the server is shutting down")
    );
    assert!(next(&mut client).await.is_none());
    assert!(front.shutdown.drain(DEADLINE).await);
}

#[tokio::test]
async fn client_that_does_not_read_blocks_its_upstream_but_not_the_shutdown() {
    let sent = Arc::new(AtomicU64::new(0));
    let (blocked, is_blocked) = oneshot::channel();
    let blocked = Arc::new(std::sync::Mutex::new(Some(blocked)));
    let upstream = upstream({
        let sent = sent.clone();
        move |head, stream| {
            let (sent, blocked) = (sent.clone(), blocked.clone());
            async move {
                let mut socket = websocket(&head, stream).await;
                loop {
                    let send = socket.send(Message::binary(vec![7; 100_000]));
                    match timeout(Duration::from_secs(1), send).await {
                        Ok(Ok(())) => sent.fetch_add(100_000, Ordering::Relaxed),
                        _ => break,
                    };
                }
                blocked.lock().unwrap().take().unwrap().send(()).unwrap();
                while let Some(Ok(_)) = socket.next().await {}
            }
        }
    })
    .await;
    let mut front = Front::start(upstream).await;
    let _client = front.connect().await;
    timeout(DEADLINE, is_blocked)
        .await
        .expect("the upstream is blocked")
        .unwrap();
    // The kernel's buffers of four sockets hold less; an unbounded buffer would hold more.
    assert!(sent.load(Ordering::Relaxed) < 32 << 20);
    front.shutdown.request();
    assert!(front.shutdown.drain(DEADLINE).await);
    front.tunnel_ended().await;
}

#[tokio::test]
async fn dropped_client_closes_the_upstream_connection() {
    let (gone, is_gone) = oneshot::channel();
    let gone = Arc::new(std::sync::Mutex::new(Some(gone)));
    let upstream = upstream(move |head, stream| {
        let gone = gone.clone();
        async move {
            let mut socket = websocket(&head, stream).await;
            while let Some(Ok(_)) = socket.next().await {}
            gone.lock().unwrap().take().unwrap().send(()).unwrap();
        }
    })
    .await;
    let mut front = Front::start(upstream).await;
    let client = front.connect().await;
    drop(client);
    timeout(DEADLINE, is_gone)
        .await
        .expect("the upstream sees the end")
        .unwrap();
    front.tunnel_ended().await;
}

#[tokio::test]
async fn either_direction_may_close_first() {
    let upstream = upstream(|_, mut stream| async move {
        let answer =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.unwrap();
        let mut question = String::new();
        stream.read_to_string(&mut question).await.unwrap();
        stream
            .write_all(format!("all of {question}").as_bytes())
            .await
            .unwrap();
    })
    .await;
    let mut front = Front::start(upstream).await;
    let mut client = TcpStream::connect(front.addr).await.unwrap();
    // The first bytes of the new protocol follow the request immediately.
    let request =
        "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\nthe early ";
    client.write_all(request.as_bytes()).await.unwrap();
    client.write_all(b"and the late").await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    timeout(DEADLINE, client.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(
        answer.ends_with("\r\n\r\nall of the early and the late"),
        "{answer}"
    );
    front.tunnel_ended().await;
}
