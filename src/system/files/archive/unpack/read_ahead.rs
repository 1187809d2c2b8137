//! Reading ahead on a separate thread, so that decompression and disk writes overlap.

use std::{
    io::{self, Read},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{Builder, Scope},
};

use bytes::{Buf, Bytes};

/// The size of a chunk.
const CHUNK_BYTES: usize = 256 << 10;
/// The limit on chunks that are read ahead.
const MAX_CHUNKS: usize = 4;

/// A reader whose input is read by another thread.
pub(super) struct ReadAhead {
    chunks: Receiver<io::Result<Bytes>>,
    chunk: Bytes,
}

impl ReadAhead {
    /// Starts the thread. It ends with the input, or soon after this is dropped.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start<'scope>(
        input: impl Read + Send + 'scope,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<Self> {
        let (sender, chunks) = sync_channel(MAX_CHUNKS);
        let thread = Builder::new().name("unpack".into());
        thread.spawn_scoped(scope, || send_chunks(input, sender))?;
        Ok(ReadAhead {
            chunks,
            chunk: Bytes::new(),
        })
    }
}

fn send_chunks(mut input: impl Read, chunks: SyncSender<io::Result<Bytes>>) {
    loop {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let read = input
            .by_ref()
            .take(CHUNK_BYTES as u64)
            .read_to_end(&mut chunk);
        let is_last = !matches!(read, Ok(1..));
        // The bytes read before an error are sent before it.
        if !chunk.is_empty() && chunks.send(Ok(chunk.into())).is_err() {
            return;
        }
        if let Err(error) = read {
            // Fails only if the reader was dropped, which needs no error.
            let _ = chunks.send(Err(error));
        }
        if is_last {
            return;
        }
    }
}

impl Read for ReadAhead {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty()
            && let Ok(chunk) = self.chunks.recv()
        {
            self.chunk = chunk?;
        }
        let count = self.chunk.len().min(into.len());
        self.chunk.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Yields its bytes, then an error.
    struct FailingReader(&'static [u8]);

    impl Read for FailingReader {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.read(into) {
                Ok(0) => Err(io::ErrorKind::InvalidData.into()),
                read => read,
            }
        }
    }

    #[test]
    fn reader_yields_all_content_then_error() {
        let content: Vec<u8> = (0..CHUNK_BYTES * 7 + 5).map(|byte| byte as u8).collect();
        thread::scope(|scope| {
            let mut read = Vec::new();
            let mut ahead = ReadAhead::start(&content[..], scope).unwrap();
            ahead.read_to_end(&mut read).unwrap();
            assert!(read == content);
            let mut ahead = ReadAhead::start(FailingReader(b"start"), scope).unwrap();
            let mut start = [0; 5];
            ahead.read_exact(&mut start).unwrap();
            assert_eq!(&start, b"start");
            let error = ahead.read(&mut start).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        });
    }

    #[test]
    fn thread_ends_when_reader_is_dropped() {
        // The scope waits for the thread, which would read the endless input forever.
        thread::scope(|scope| {
            let mut ahead = ReadAhead::start(io::repeat(7), scope).unwrap();
            ahead.read_exact(&mut [0; 9]).unwrap();
        });
    }
}
