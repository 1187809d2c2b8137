//! Reading ahead: what is read is made on a thread of its own, while what came before is put in its place.

use std::{
    io::{self, Read},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{Builder, Scope},
};

use bytes::{Buf, Bytes};

/// Read at a time, and how many of these may wait.
const CHUNK: usize = 256 << 10;
const CHUNKS: usize = 4;

pub struct ReadAhead {
    chunks: Receiver<io::Result<Bytes>>,
    chunk: Bytes,
}

impl ReadAhead {
    /// The thread ends with the input, or soon after this is dropped.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub fn of<'scope>(
        input: impl Read + Send + 'scope,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<Self> {
        let (sender, chunks) = sync_channel(CHUNKS);
        let thread = Builder::new().name("unpack".into());
        thread.spawn_scoped(scope, || pass_on(input, sender))?;
        Ok(ReadAhead {
            chunks,
            chunk: Bytes::new(),
        })
    }
}

fn pass_on(mut input: impl Read, chunks: SyncSender<io::Result<Bytes>>) {
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        let read = input.by_ref().take(CHUNK as u64).read_to_end(&mut chunk);
        let is_last = !matches!(read, Ok(1..));
        // What came before an error is read before it.
        if !chunk.is_empty() && chunks.send(Ok(chunk.into())).is_err() {
            return;
        }
        if let Err(error) = read {
            // Whoever reads no longer need not know.
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

    struct Failing(&'static [u8]);

    impl Read for Failing {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.read(into) {
                Ok(0) => Err(io::ErrorKind::InvalidData.into()),
                read => read,
            }
        }
    }

    #[test]
    fn all_is_read_and_the_error_behind_it() {
        let content: Vec<u8> = (0..CHUNK * 7 + 5).map(|byte| byte as u8).collect();
        thread::scope(|scope| {
            let mut read = Vec::new();
            let mut ahead = ReadAhead::of(&content[..], scope).unwrap();
            ahead.read_to_end(&mut read).unwrap();
            assert!(read == content);
            let mut ahead = ReadAhead::of(Failing(b"begun"), scope).unwrap();
            let mut begun = [0; 5];
            ahead.read_exact(&mut begun).unwrap();
            assert_eq!(&begun, b"begun");
            let error = ahead.read(&mut begun).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        });
    }

    #[test]
    fn nobody_reads_on_for_nobody() {
        thread::scope(|scope| {
            let mut ahead = ReadAhead::of(io::repeat(7), scope).unwrap();
            ahead.read_exact(&mut [0; 9]).unwrap();
        });
    }
}
