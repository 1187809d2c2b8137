//! A bounded channel from the async receiver of an upload to the thread that unpacks it.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

/// The limit on chunks that wait to be unpacked.
const MAX_CHUNKS: usize = 4;

enum Part {
    Chunk(Bytes),
    End,
}

/// The sending end. If it is dropped without [`UploadSender::finish`], the reader gets an error.
#[derive(Debug)]
pub struct UploadSender(mpsc::Sender<Part>);

/// The receiving end, a blocking reader.
#[derive(Debug)]
pub struct UploadReader {
    parts: mpsc::Receiver<Part>,
    chunk: Bytes,
    is_finished: bool,
}

/// Creates a channel.
#[must_use]
pub fn upload_channel() -> (UploadSender, UploadReader) {
    let (sender, parts) = mpsc::channel(MAX_CHUNKS);
    let reader = UploadReader {
        parts,
        chunk: Bytes::new(),
        is_finished: false,
    };
    (UploadSender(sender), reader)
}

impl UploadSender {
    /// Sends a chunk. Returns `false` if the reader was dropped.
    pub async fn send(&self, chunk: Bytes) -> bool {
        self.0.send(Part::Chunk(chunk)).await.is_ok()
    }

    /// Marks the upload as complete.
    pub async fn finish(self) {
        // Fails only if the reader was dropped, which needs no end.
        let _ = self.0.send(Part::End).await;
    }
}

impl Read for UploadReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() && !self.is_finished {
            match self.parts.blocking_recv() {
                Some(Part::Chunk(chunk)) => self.chunk = chunk,
                Some(Part::End) => self.is_finished = true,
                None => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
        let count = self.chunk.len().min(into.len());
        self.chunk.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}
