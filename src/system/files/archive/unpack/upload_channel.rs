//! A bounded channel from whoever receives an archive to the thread that unpacks it.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

/// Chunks that may wait to be unpacked.
const CHUNKS: usize = 4;

enum Part {
    Chunk(Bytes),
    End,
}

/// Where an archive comes in. Dropped without [`UploadSender::end`], it broke off.
#[derive(Debug)]
pub struct UploadSender(mpsc::Sender<Part>);

#[derive(Debug)]
pub struct UploadReader {
    parts: mpsc::Receiver<Part>,
    chunk: Bytes,
    ended: bool,
}

#[must_use]
pub fn upload_channel() -> (UploadSender, UploadReader) {
    let (sender, parts) = mpsc::channel(CHUNKS);
    let reader = UploadReader {
        parts,
        chunk: Bytes::new(),
        ended: false,
    };
    (UploadSender(sender), reader)
}

impl UploadSender {
    /// `false` once nobody wants more.
    pub async fn send(&self, chunk: Bytes) -> bool {
        self.0.send(Part::Chunk(chunk)).await.is_ok()
    }

    pub async fn end(self) {
        // Who no longer reads need not know.
        let _ = self.0.send(Part::End).await;
    }
}

impl Read for UploadReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() && !self.ended {
            match self.parts.blocking_recv() {
                Some(Part::Chunk(chunk)) => self.chunk = chunk,
                Some(Part::End) => self.ended = true,
                None => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
        let count = self.chunk.len().min(into.len());
        self.chunk.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}
