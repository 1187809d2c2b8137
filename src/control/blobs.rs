//! Where large things are kept that outlive their browsers: a local folder, spoken to as any blob store would be.

use std::{
    fs::{self, DirBuilder},
    io,
    ops::Range,
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{
    GetOptions, GetResultPayload, ObjectStore, ObjectStoreExt, WriteMultipart,
    local::LocalFileSystem, path::Path as Key,
};
use tokio::{
    fs::File,
    io::AsyncReadExt,
    time::{Instant, timeout_at},
};
use tokio_util::io::ReaderStream;

/// Parts on their way to the store while the next one is being read.
const PARTS_UNDER_WAY: usize = 2;
/// Read at a time: large enough that the disk is asked seldom, small enough that many readers cost little.
const CHUNK: usize = 256 << 10;

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("there is no such blob")]
    NotFound,
    #[error("blob store: {0}")]
    Store(object_store::Error),
}

impl From<object_store::Error> for BlobError {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { .. } => BlobError::NotFound,
            other => BlobError::Store(other),
        }
    }
}

/// Why something was not put into the store.
#[derive(Debug, thiserror::Error)]
pub enum PutError<E> {
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// What was to be put broke off.
    #[error("{0}")]
    Source(E),
    #[error("it has more than {0} bytes")]
    TooLong(u64),
    #[error("it did not come within {0:?}")]
    Timeout(Duration),
}

/// What is put into the store at most, and how long it may take to come.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub bytes: u64,
    pub time: Duration,
}

/// The store; clones share it.
#[derive(Debug, Clone)]
pub struct Blobs {
    store: Arc<LocalFileSystem>,
}

impl Blobs {
    /// Uses the folder, which is made where it is missing, and removes what a killed process has left half written. Nobody else may use
    /// it meanwhile.
    pub fn open(folder: &Path) -> io::Result<Blobs> {
        let mut private = DirBuilder::new();
        private.mode(0o700).recursive(true).create(folder)?;
        remove_unfinished(folder)?;
        let store = LocalFileSystem::new_with_prefix(folder).map_err(io::Error::other)?;
        Ok(Blobs {
            // What has been told to be kept survives a power cut: whoever is told removes where it came from.
            store: Arc::new(store.with_fsync(true)),
        })
    }

    /// Puts `content` into the store, over what may be there; says how many bytes it has. A reader finds the old or all of the new.
    pub async fn put<E>(
        &self,
        key: &str,
        content: impl Stream<Item = Result<Bytes, E>>,
        limits: Limits,
    ) -> Result<u64, PutError<E>> {
        let deadline = Instant::now() + limits.time;
        let upload = self.store.put_multipart(&Key::from(key)).await;
        let mut upload = WriteMultipart::new(upload.map_err(BlobError::from)?);
        let mut content = std::pin::pin!(content);
        let mut size = 0;
        loop {
            let written = match timeout_at(deadline, content.next()).await {
                Ok(None) => break,
                Err(_) => Err(PutError::Timeout(limits.time)),
                Ok(Some(Err(error))) => Err(PutError::Source(error)),
                Ok(Some(Ok(chunk))) if chunk.len() as u64 > limits.bytes - size => {
                    Err(PutError::TooLong(limits.bytes))
                }
                Ok(Some(Ok(chunk))) => {
                    size += chunk.len() as u64;
                    let ready = upload.wait_for_capacity(PARTS_UNDER_WAY).await;
                    ready
                        .map(|()| upload.put(chunk))
                        .map_err(|error| PutError::Blob(error.into()))
                }
            };
            if let Err(error) = written {
                if let Err(error) = upload.abort().await {
                    tracing::warn!(key, %error, "a part of a blob is left until the next start");
                }
                return Err(error);
            }
        }
        upload.finish().await.map_err(BlobError::from)?;
        Ok(size)
    }

    /// A part of a blob. It is read to its end even where the blob is removed meanwhile.
    pub async fn get(
        &self,
        key: &str,
        range: Range<u64>,
    ) -> Result<BoxStream<'static, io::Result<Bytes>>, BlobError> {
        let length = range.end - range.start;
        if length == 0 {
            return Ok(futures::stream::empty().boxed());
        }
        let options = GetOptions {
            range: Some(range.clone().into()),
            ..GetOptions::default()
        };
        let found = self.store.get_opts(&Key::from(key), options).await?;
        Ok(match found.payload {
            // The store's own stream reads little at a time.
            GetResultPayload::File(file, _) => {
                use tokio::io::AsyncSeekExt;
                let mut file = File::from_std(file);
                let sought = file.seek(io::SeekFrom::Start(range.start)).await;
                sought.map_err(|error| {
                    BlobError::Store(object_store::Error::Generic {
                        store: "local",
                        source: error.into(),
                    })
                })?;
                ReaderStream::with_capacity(file.take(length), CHUNK).boxed()
            }
            GetResultPayload::Stream(stream) => stream.map_err(io::Error::other).boxed(),
        })
    }

    /// How many bytes a blob has; `None` where there is none.
    pub async fn size(&self, key: &str) -> Result<Option<u64>, BlobError> {
        match self.store.head(&Key::from(key)).await {
            Ok(found) => Ok(Some(found.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a blob; one that is not there is removed.
    pub async fn remove(&self, key: &str) -> Result<(), BlobError> {
        match self.store.delete(&Key::from(key)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The keys of all blobs below `folder`.
    pub async fn list(&self, folder: &str) -> Result<Vec<String>, BlobError> {
        let found = self.store.list(Some(&Key::from(folder)));
        let keys = found.map_ok(|found| found.location.to_string());
        Ok(keys.try_collect().await?)
    }
}

/// The store writes beside a blob's place, under its name with `#` and a number, and renames.
fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_unfinished(&path)?;
            continue;
        }
        let name = entry.file_name();
        let unfinished = name.to_str().and_then(|name| name.rsplit_once('#'));
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if unfinished.is_some_and(|(_, number)| is_number(number)) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    const LIMITS: Limits = Limits {
        bytes: 64 << 20,
        time: Duration::from_secs(60),
    };

    fn store() -> (tempfile::TempDir, Blobs) {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(&folder.path().join("blobs")).unwrap();
        (folder, blobs)
    }

    fn chunks(count: usize) -> impl Stream<Item = io::Result<Bytes>> {
        stream::iter((0..count).map(|n| Ok(Bytes::from(vec![n as u8; 1 << 20]))))
    }

    async fn read(blobs: &Blobs, key: &str, range: Range<u64>) -> Vec<u8> {
        let stream = blobs.get(key, range).await.unwrap();
        let chunks: Vec<Bytes> = stream.try_collect().await.unwrap();
        chunks.concat()
    }

    #[tokio::test]
    async fn a_blob_is_kept_whole_and_found_in_parts() {
        let (_folder, blobs) = store();
        assert_eq!(
            blobs.put("a/one", chunks(13), LIMITS).await.unwrap(),
            13 << 20
        );
        assert_eq!(blobs.size("a/one").await.unwrap(), Some(13 << 20));
        let start = (5 << 20) - 2;
        let part = read(&blobs, "a/one", start..start + 4).await;
        assert_eq!(part, [4, 4, 5, 5]);
        assert_eq!(read(&blobs, "a/one", 0..13 << 20).await.len(), 13 << 20);
        assert!(read(&blobs, "a/one", 7..7).await.is_empty());
        assert_eq!(
            blobs.put("a/one", chunks(1), LIMITS).await.unwrap(),
            1 << 20
        );
        assert_eq!(blobs.size("a/one").await.unwrap(), Some(1 << 20));
        assert_eq!(blobs.put("b", chunks(0), LIMITS).await.unwrap(), 0);
        assert_eq!(blobs.list("a").await.unwrap(), ["a/one"]);
        for _ in 0..2 {
            blobs.remove("a/one").await.unwrap();
        }
        assert_eq!(blobs.size("a/one").await.unwrap(), None);
        let gone = blobs.get("a/one", 0..1).await;
        assert!(matches!(gone, Err(BlobError::NotFound)));
        assert_eq!(blobs.list("a").await.unwrap(), [""; 0]);
    }

    #[tokio::test]
    async fn what_breaks_off_leaves_the_old_one_and_nothing_else() {
        let (folder, blobs) = store();
        blobs.put("a", chunks(1), LIMITS).await.unwrap();
        let broken = chunks(12).chain(stream::iter([Err(io::Error::other("gone"))]));
        let error = blobs.put("a", broken, LIMITS).await.unwrap_err();
        assert!(matches!(error, PutError::Source(_)));
        assert_eq!(blobs.size("a").await.unwrap(), Some(1 << 20));
        let left = fs::read_dir(folder.path().join("blobs")).unwrap();
        assert_eq!(left.count(), 1);
    }

    #[tokio::test]
    async fn what_is_too_long_or_takes_too_long_is_not_put() {
        let (folder, blobs) = store();
        let bytes = (2 << 20) - 1;
        let long = blobs.put("a", chunks(2), Limits { bytes, ..LIMITS }).await;
        assert!(matches!(long, Err(PutError::TooLong(limit)) if limit == bytes));
        let never = chunks(1).chain(stream::pending());
        let time = Duration::from_millis(50);
        let late = blobs.put("a", never, Limits { time, ..LIMITS }).await;
        assert!(matches!(late, Err(PutError::Timeout(limit)) if limit == time));
        let exact = Limits {
            bytes: 1 << 20,
            ..LIMITS
        };
        assert_eq!(blobs.put("b", chunks(1), exact).await.unwrap(), 1 << 20);
        let left = fs::read_dir(folder.path().join("blobs")).unwrap();
        assert_eq!(left.count(), 1);
    }

    #[tokio::test]
    async fn what_a_killed_process_left_half_written_is_removed() {
        let (folder, blobs) = store();
        blobs.put("a/one", chunks(1), LIMITS).await.unwrap();
        let folder = folder.path().join("blobs");
        fs::write(folder.join("a/two#1"), "half").unwrap();
        let blobs = Blobs::open(&folder).unwrap();
        assert!(!folder.join("a/two#1").exists());
        assert_eq!(blobs.list("").await.unwrap(), ["a/one"]);
    }
}
