//! The two pipes over which Chromium speaks CDP (`--remote-debugging-pipe=cbor`). Each message is
//! an envelope with an object, see `cbor`.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use bytes::{Buf, BytesMut};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde::{Deserialize, Serialize};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::{Receiver, Sender},
    process::Command,
};

use super::cbor::{Envelope, Reader, Text};
use crate::system::process::{
    child,
    handover::{PassedBytes, PassedDescriptor},
};

/// The descriptors on which Chromium expects its ends.
const CHROMIUM_READS: i32 = 3;
const CHROMIUM_WRITES: i32 = 4;
/// The capacity of each pipe, the most that an unprivileged user may set. A smaller one works too.
const CAPACITY: i32 = 1 << 20;
/// The size of a read. A longer message grows the buffer, which shrinks afterwards.
const READ_SIZE: usize = 64 << 10;
/// The size above which an empty buffer is freed.
const MAX_BUFFER: usize = 1 << 20;
/// The longest message. Chromium accepts no longer one over a WebSocket either.
pub(super) const MAX_MESSAGE: usize = 256 << 20;
/// The length of a message's start that contains its id.
const ID_SIZE: usize = 16;

/// Our ends of the pipes.
#[derive(Debug)]
pub struct CdpPipe {
    pub(super) reader: MessageReader,
    pub(super) writer: Sender,
}

impl CdpPipe {
    /// Creates the pipes, and makes the command inherit Chromium's ends.
    pub fn open(command: &mut Command) -> io::Result<Self> {
        let (from_agent, to_chromium) = pipe()?;
        let (from_chromium, to_agent) = pipe()?;
        command.arg("--remote-debugging-pipe=cbor");
        child::inherit_as(command, from_agent, CHROMIUM_READS)?;
        child::inherit_as(command, to_agent, CHROMIUM_WRITES)?;
        Self::of(from_chromium, to_chromium)
    }

    /// Releases the pipes to the next program of this process.
    ///
    /// # Errors
    /// Fails if a descriptor cannot be passed on.
    pub(super) fn pass(self) -> io::Result<PassedPipe> {
        let CdpPipe { reader, writer } = self;
        Ok(PassedPipe {
            reader: PassedDescriptor::new(reader.pipe.into_nonblocking_fd()?)?,
            writer: PassedDescriptor::new(writer.into_nonblocking_fd()?)?,
            unread: reader.buffer.into(),
            skipped: reader.skipped,
        })
    }

    /// Takes over the pipes of the program before.
    ///
    /// # Errors
    /// Fails if a descriptor is no pipe.
    pub(super) fn adopt(passed: PassedPipe) -> io::Result<Self> {
        let mut pipe = Self::of(passed.reader.into_inner(), passed.writer.into_inner())?;
        pipe.reader.buffer.extend_from_slice(&passed.unread.0);
        pipe.reader.skipped = passed.skipped;
        Ok(pipe)
    }

    pub(super) fn of(reader: OwnedFd, writer: OwnedFd) -> io::Result<Self> {
        for descriptor in [&reader, &writer] {
            fcntl(descriptor, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(CdpPipe {
            reader: MessageReader::new(Receiver::from_owned_fd(reader)?),
            writer: Sender::from_owned_fd(writer)?,
        })
    }
}

/// The pipes of a running Chromium, for the next program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PassedPipe {
    reader: PassedDescriptor,
    writer: PassedDescriptor,
    /// The bytes that were read, but not returned as a message.
    unread: PassedBytes,
    /// The number of bytes before the next message.
    skipped: usize,
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    // Refused where the user has many pipes. The default capacity works as well.
    let _ = fcntl(writer.as_fd(), FcntlArg::F_SETPIPE_SZ(CAPACITY));
    Ok((reader, writer))
}

/// A message that Chromium has sent.
#[derive(Debug, PartialEq)]
pub(super) enum Frame<'a> {
    /// The contents of a message's envelope.
    Message(&'a [u8]),
    /// A message that is too long. A reply has an id.
    TooLong { id: Option<i32> },
}

/// Splits what Chromium writes into messages.
#[derive(Debug)]
pub(super) struct MessageReader {
    pipe: Receiver,
    buffer: BytesMut,
    /// The number of bytes before the next message: of the message that was returned.
    skipped: usize,
}

impl MessageReader {
    fn new(pipe: Receiver) -> Self {
        MessageReader {
            pipe,
            buffer: BytesMut::new(),
            skipped: 0,
        }
    }

    /// Reads what Chromium has written. Returns false after it has ended. Cancel-safe.
    pub(super) async fn fill(&mut self) -> io::Result<bool> {
        if self.buffer.is_empty() && self.buffer.capacity() > MAX_BUFFER {
            // Frees the memory of a long message.
            self.buffer = BytesMut::new();
        }
        self.buffer.reserve(READ_SIZE);
        Ok(self.pipe.read_buf(&mut self.buffer).await? > 0)
    }

    /// Returns the next complete message that has been read.
    ///
    /// # Errors
    /// Fails if Chromium does not write messages in CBOR.
    pub(super) fn next(&mut self) -> io::Result<Option<Frame<'_>>> {
        let skipped = self.skipped.min(self.buffer.len());
        self.buffer.advance(skipped);
        self.skipped -= skipped;
        if self.skipped > 0 {
            return Ok(None);
        }
        let Some(Envelope { start, length }) = Envelope::at_start_of(&self.buffer)? else {
            return Ok(None);
        };
        let available = &self.buffer[start..];
        if length > MAX_MESSAGE && available.len() >= ID_SIZE {
            self.skipped = start + length;
            let id = id_at_start(available);
            return Ok(Some(Frame::TooLong { id }));
        }
        if available.len() < length {
            return Ok(None);
        }
        self.skipped = start + length;
        Ok(Some(Frame::Message(&available[..length])))
    }
}

/// Returns the id of a message that begins with it, which every reply does.
fn id_at_start(contents: &[u8]) -> Option<i32> {
    let mut members = Reader::of_object(contents).ok()?;
    let name = members.name().ok()?;
    let has_id = name == Some(Text::Utf8(b"id"));
    has_id.then(|| members.integer().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write};

    use super::*;
    use crate::system::cdp::cbor;

    fn reader() -> (File, MessageReader) {
        let (reader, writer) = pipe().unwrap();
        fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let receiver = Receiver::from_owned_fd(reader).unwrap();
        (File::from(writer), MessageReader::new(receiver))
    }

    fn message(json: &str) -> Vec<u8> {
        let mut message = Vec::new();
        cbor::value_from_json(json, usize::MAX, &mut message).unwrap();
        message
    }

    fn contents(message: &[u8]) -> Option<Frame<'_>> {
        Some(Frame::Message(&message[7..]))
    }

    #[tokio::test]
    async fn messages_are_split_at_any_end_of_a_read() {
        let (mut chromium, mut reader) = reader();
        let first = message(r#"{"id":1}"#);
        let long = message(&format!(r#"{{"x":"{}"}}"#, "x".repeat(3 * READ_SIZE)));
        // As older versions of Chromium write an envelope.
        let old = [&first[..1], &first[2..]].concat();
        let all = [&first[..], &long, &old, &first].concat();
        for start in [1, 2, 3, 6, 7, 12, all.len() - first.len() - 3] {
            chromium.write_all(&all[..start]).unwrap();
            assert!(reader.fill().await.unwrap());
            let mut count = 0;
            while reader.next().unwrap().is_some() {
                count += 1;
            }
            chromium.write_all(&all[start..]).unwrap();
            while count < 4 {
                assert!(reader.fill().await.unwrap());
                while let Some(frame) = reader.next().unwrap() {
                    let expected = if count == 1 { &long } else { &first };
                    assert_eq!(Some(frame), contents(expected), "{start}: {count}");
                    count += 1;
                }
            }
        }
        drop(chromium);
        assert!(!reader.fill().await.unwrap());
        assert!(reader.buffer.capacity() <= MAX_BUFFER);
    }

    #[tokio::test]
    async fn message_that_is_too_long_is_skipped_without_its_memory() {
        let (mut chromium, mut reader) = reader();
        let last = message(r#"{"id":2}"#);
        for (json, id) in [
            (r#"{"id":1000000000}"#, Some(1_000_000_000)),
            (r#"{"method":"X"}"#, None),
        ] {
            let mut long = message(json);
            let length = MAX_MESSAGE + 1;
            long[3..7].copy_from_slice(&(length as u32).to_be_bytes());
            long.resize(7 + READ_SIZE, 0);
            chromium.write_all(&long).unwrap();
            assert!(reader.fill().await.unwrap());
            assert_eq!(reader.next().unwrap(), Some(Frame::TooLong { id }));
            let mut rest = length - READ_SIZE;
            while rest > 0 {
                let part = rest.min(READ_SIZE);
                chromium.write_all(&long[..part]).unwrap();
                rest -= part;
                assert!(reader.fill().await.unwrap());
                assert_eq!(reader.next().unwrap(), None);
            }
            chromium.write_all(&last).unwrap();
            while reader.buffer.len() < last.len() {
                assert!(reader.fill().await.unwrap());
            }
            assert!(reader.buffer.capacity() <= MAX_BUFFER);
            assert_eq!(reader.next().unwrap(), contents(&last));
            assert_eq!(reader.next().unwrap(), None);
        }
    }

    #[tokio::test]
    async fn bytes_that_are_no_message_are_an_error() {
        for bytes in [
            &b"{\"id\":1}\0"[..],
            &[0xd8, 0x19],
            &[0xd8, 0x18, 0x58, 1, 0],
        ] {
            let (mut chromium, mut reader) = reader();
            chromium.write_all(bytes).unwrap();
            assert!(reader.fill().await.unwrap());
            let error = reader.next().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
