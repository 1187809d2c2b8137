//! The two pipes over which Chromium speaks CDP (`--remote-debugging-pipe`). Each message ends with
//! a NUL byte.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use bytes::{Buf, Bytes, BytesMut};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::{Receiver, Sender},
    process::Command,
};

use super::message::{Head, SERVER_ERROR, error_reply};
use crate::system::process::child;

/// The byte after each message. JSON text contains none.
pub(super) const TERMINATOR: u8 = 0;
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
const MAX_MESSAGE: usize = 256 << 20;
const TOO_LONG: &str = "the reply is over 256 MiB";

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
        command.arg("--remote-debugging-pipe");
        child::inherit_as(command, from_agent, CHROMIUM_READS)?;
        child::inherit_as(command, to_agent, CHROMIUM_WRITES)?;
        Self::of(from_chromium, to_chromium)
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

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    // Refused where the user has many pipes. The default capacity works as well.
    let _ = fcntl(writer.as_fd(), FcntlArg::F_SETPIPE_SZ(CAPACITY));
    Ok((reader, writer))
}

/// Splits what Chromium writes into messages.
#[derive(Debug)]
pub(super) struct MessageReader {
    pipe: Receiver,
    buffer: BytesMut,
    /// The number of bytes at the start of the buffer that contain no terminator.
    scanned: usize,
    /// The replacement of a message that is too long. The rest of that message is dropped.
    substitute: Option<BytesMut>,
}

impl MessageReader {
    fn new(pipe: Receiver) -> Self {
        MessageReader {
            pipe,
            buffer: BytesMut::new(),
            scanned: 0,
            substitute: None,
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
    pub(super) fn next(&mut self) -> Option<BytesMut> {
        loop {
            let found = memchr::memchr(TERMINATOR, &self.buffer[self.scanned..]);
            let Some(offset) = found else {
                self.scanned = self.buffer.len();
                if self.scanned > MAX_MESSAGE || self.substitute.is_some() {
                    self.drop_part();
                }
                return None;
            };
            let message = self.buffer.split_to(self.scanned + offset);
            self.buffer.advance(1);
            self.scanned = 0;
            if message.len() > READ_SIZE {
                // What follows gets memory of its own: it would keep that of this message.
                self.buffer = BytesMut::from(&self.buffer[..]);
            }
            match self.substitute.take() {
                None => return Some(message),
                Some(error) if !error.is_empty() => return Some(error),
                Some(_) => {}
            }
        }
    }

    /// Drops what has been read of a message that is too long.
    fn drop_part(&mut self) {
        let part = std::mem::take(&mut self.buffer);
        self.scanned = 0;
        if self.substitute.is_some() {
            return;
        }
        tracing::warn!(
            "dropped a message of Chromium over {} MiB",
            MAX_MESSAGE >> 20
        );
        let error = match Head::id_at_start(&part) {
            Some(id) => error_reply(Some(id), SERVER_ERROR, TOO_LONG),
            // An event.
            None => Bytes::new(),
        };
        self.substitute = Some(error.into());
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write};

    use super::*;

    #[tokio::test]
    async fn messages_are_split_at_any_end_of_a_read() {
        let (reader, writer) = pipe().unwrap();
        let mut chromium = File::from(writer);
        let mut reader = MessageReader::new({
            fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
            Receiver::from_owned_fd(reader).unwrap()
        });
        let long = vec![b'x'; 3 * READ_SIZE];
        chromium.write_all(b"{\"id\":1}\0{\"id\"").unwrap();
        assert!(reader.fill().await.unwrap());
        assert_eq!(reader.next().as_deref(), Some(&b"{\"id\":1}"[..]));
        assert_eq!(reader.next(), None);
        chromium.write_all(b":2}\0").unwrap();
        chromium.write_all(&long).unwrap();
        chromium.write_all(b"\0\0").unwrap();
        drop(chromium);
        let mut messages = Vec::new();
        while reader.fill().await.unwrap() {
            messages.extend(std::iter::from_fn(|| reader.next()).map(BytesMut::freeze));
        }
        assert_eq!(messages.len(), 3);
        assert_eq!(messages[0], &b"{\"id\":2}"[..]);
        assert!(messages[1] == long && messages[2].is_empty());
    }
}
