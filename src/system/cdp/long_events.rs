//! Drops events that are longer than a message may be, so that they do not end the connection.
//!
//! A page chooses the length of some events, such as that of a console message, and Chromium
//! repeats stored ones to every new client. A reply of that length is passed on, and rejected by
//! the WebSocket library.
//!
//! ```text
//! Header ── up to the limit, or no event ──▶ Passing ── end of the frame ──▶ Header
//!        └─ event over the limit ──────────▶ Dropping ─ end of the frame ──▶ Header
//! ```

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader, ReadBuf},
    net::TcpStream,
};

/// Bytes of the longest header of a server's frame: two fixed, eight of length.
const MAX_HEADER: usize = 10;
/// The bits of a length that fits into the second byte of a header.
const SHORT_LENGTH: u8 = 0x7f;
/// A complete text message in one frame. Chromium sends every message so.
const TEXT_FRAME: u8 = 0x81;
/// The start of an event. That of a reply is its id.
const EVENT_START: &[u8] = br#"{"method":"#;

/// The position in the stream of frames.
#[derive(Debug, Clone, Copy)]
enum State {
    /// Before the first frame: the WebSocket handshake.
    Handshake,
    Header,
    /// Bytes of the held header, from the given one, and then of the payload go to the reader.
    Passing {
        held: usize,
        payload: u64,
    },
    Dropping {
        payload: u64,
    },
}

/// A connection to Chromium without its over-long events.
#[derive(Debug)]
pub(super) struct WithoutLongEvents {
    stream: BufReader<TcpStream>,
    state: State,
    /// A frame's header, and of an over-long frame also the start of its payload.
    held: Vec<u8>,
    max_payload: u64,
    has_warned: bool,
}

impl WithoutLongEvents {
    /// Drops events of more than `max_payload` bytes after [`Self::start`].
    pub(super) fn new(stream: TcpStream, buffer: usize, max_payload: usize) -> Self {
        WithoutLongEvents {
            stream: BufReader::with_capacity(buffer, stream),
            state: State::Handshake,
            held: Vec::with_capacity(MAX_HEADER + EVENT_START.len()),
            max_payload: max_payload as u64,
            has_warned: false,
        }
    }

    /// Expects frames from now on. Call after the handshake, before the first message is sent.
    pub(super) fn start(&mut self) {
        self.state = State::Header;
    }

    /// Reads bytes until `held` has `length` of them. Returns false at the end of the stream.
    fn poll_hold(&mut self, context: &mut Context<'_>, length: usize) -> Poll<io::Result<bool>> {
        while self.held.len() < length {
            let mut stream = Pin::new(&mut self.stream);
            let read = ready!(stream.as_mut().poll_fill_buf(context))?;
            if read.is_empty() {
                return Poll::Ready(Ok(false));
            }
            let taken = read.len().min(length - self.held.len());
            self.held.extend_from_slice(&read[..taken]);
            stream.consume(taken);
        }
        Poll::Ready(Ok(true))
    }

    /// Reads a header, and decides about its frame. Returns `None` at the end of the stream.
    fn poll_header(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<State>>> {
        if !ready!(self.poll_hold(context, 2))? {
            return Poll::Ready(Ok(None));
        }
        let header = match self.held[1] & SHORT_LENGTH {
            126 => 4,
            127 => MAX_HEADER,
            _ => 2,
        };
        if !ready!(self.poll_hold(context, header))? {
            return Poll::Ready(Ok(None));
        }
        let payload = payload_length(&self.held[..header]);
        if payload <= self.max_payload || self.held[0] != TEXT_FRAME {
            return Poll::Ready(Ok(Some(State::Passing { held: 0, payload })));
        }
        if !ready!(self.poll_hold(context, header + EVENT_START.len()))? {
            return Poll::Ready(Ok(None));
        }
        let is_event = self.held[header..] == *EVENT_START;
        if is_event && !self.has_warned {
            self.has_warned = true;
            let limit = self.max_payload;
            tracing::warn!(
                bytes = payload,
                limit,
                "dropped an over-long event of Chromium"
            );
        }
        let payload = payload - EVENT_START.len() as u64;
        Poll::Ready(Ok(Some(match is_event {
            true => State::Dropping { payload },
            false => State::Passing { held: 0, payload },
        })))
    }

    /// Takes bytes of a payload: gives them to `target`, or drops them without one. Returns how
    /// many remain, or `None` at the end of the stream.
    fn poll_payload(
        &mut self,
        context: &mut Context<'_>,
        payload: u64,
        target: Option<&mut ReadBuf<'_>>,
    ) -> Poll<io::Result<Option<u64>>> {
        let mut stream = Pin::new(&mut self.stream);
        let read = ready!(stream.as_mut().poll_fill_buf(context))?;
        if read.is_empty() {
            return Poll::Ready(Ok(None));
        }
        let mut taken = read
            .len()
            .min(usize::try_from(payload).unwrap_or(usize::MAX));
        if let Some(target) = target {
            taken = taken.min(target.remaining());
            target.put_slice(&read[..taken]);
        }
        stream.consume(taken);
        Poll::Ready(Ok(Some(payload - taken as u64)))
    }

    /// Takes the next bytes of the stream. Returns false at its end.
    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        let next = match self.state {
            State::Handshake => {
                ready!(Pin::new(&mut self.stream).poll_read(context, target))?;
                return Poll::Ready(Ok(false));
            }
            State::Header => ready!(self.poll_header(context))?,
            State::Passing { held, payload } if held < self.held.len() => {
                let passed = target.remaining().min(self.held.len() - held);
                target.put_slice(&self.held[held..held + passed]);
                let held = held + passed;
                Some(State::Passing { held, payload })
            }
            State::Passing { payload: 0, .. } | State::Dropping { payload: 0 } => {
                self.held.clear();
                Some(State::Header)
            }
            State::Passing { held, payload } => {
                let remaining = ready!(self.poll_payload(context, payload, Some(target)))?;
                remaining.map(|payload| State::Passing { held, payload })
            }
            State::Dropping { payload } => {
                let remaining = ready!(self.poll_payload(context, payload, None))?;
                remaining.map(|payload| State::Dropping { payload })
            }
        };
        Poll::Ready(Ok(match next {
            Some(state) => {
                self.state = state;
                true
            }
            None => false,
        }))
    }
}

/// Returns the length of the payload that a complete header without a mask announces.
fn payload_length(header: &[u8]) -> u64 {
    match *header {
        [_, _, a, b] => u16::from_be_bytes([a, b]).into(),
        [_, _, a, b, c, d, e, f, g, h] => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        [_, short, ..] => (short & SHORT_LENGTH).into(),
        _ => 0,
    }
}

impl AsyncRead for WithoutLongEvents {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let start = target.filled().len();
        while target.remaining() > 0 {
            match self.poll_next(context, target) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => break,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if target.filled().len() > start => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WithoutLongEvents {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    const MAX: usize = 70_000;

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![first];
        match payload.len() {
            length @ 0..126 => frame.push(length as u8),
            length @ 126..0x1_0000 => {
                frame.push(126);
                frame.extend((length as u16).to_be_bytes());
            }
            length => {
                frame.push(127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(payload);
        frame
    }

    fn message(start: &str, length: usize) -> Vec<u8> {
        let mut payload = start.as_bytes().to_vec();
        payload.resize(length, b'x');
        frame(TEXT_FRAME, &payload)
    }

    /// Sends `chunks` one after the other, and returns the filtered stream.
    async fn filtered(chunks: Vec<Vec<u8>>, read_size: usize) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap());
        let (stream, accepted) = tokio::join!(stream, listener.accept());
        let mut server = accepted.unwrap().0;
        server.set_nodelay(true).unwrap();
        let sending = tokio::spawn(async move {
            for chunk in chunks {
                server.write_all(&chunk).await.unwrap();
            }
        });
        let mut filter = WithoutLongEvents::new(stream.unwrap(), 512, MAX);
        filter.start();
        let (mut all, mut part) = (Vec::new(), vec![0; read_size]);
        loop {
            let read = filter.read(&mut part).await.unwrap();
            if read == 0 {
                break;
            }
            all.extend(&part[..read]);
        }
        sending.await.unwrap();
        all
    }

    #[tokio::test]
    async fn only_over_long_events_are_dropped() {
        let event = r#"{"method":"Runtime.consoleAPICalled","params":{"x":""#;
        let passed = [
            message(event, 60),
            message(event, 60_000),
            message(event, MAX),
            message(r#"{"id":7,"result":{"x":""#, MAX + 1),
            frame(0x82, &vec![1; MAX + 1]),
            message(event, 125),
            frame(0x88, b""),
        ];
        let dropped = message(event, MAX + 1);
        let mut stream = dropped.clone();
        for frame in &passed {
            stream.extend(frame);
            stream.extend(&dropped);
        }
        let expected = passed.concat();
        for (chunk, read_size) in [(stream.len(), 1 << 20), (1000, 7), (997, 4096)] {
            let chunks = stream.chunks(chunk).map(<[u8]>::to_vec).collect();
            assert!(filtered(chunks, read_size).await == expected, "{chunk}");
        }
        // Every position at which a header and the start of a payload can be split.
        for split in 0..24 {
            let mut start = dropped.clone();
            let mut rest = start.split_off(split);
            rest.extend(message(event, 60));
            assert!(
                filtered(vec![start, rest], 100).await == message(event, 60),
                "{split}"
            );
        }
    }

    #[tokio::test]
    async fn end_within_a_frame_is_an_end() {
        for length in [1, 5, 15, 1000] {
            let mut cut = message(r#"{"method":"X"}"#, MAX + 1);
            cut.truncate(length);
            assert!(filtered(vec![cut], 100).await.is_empty());
        }
    }
}
