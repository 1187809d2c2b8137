//! Storage for files that outlive their browsers, behind the interface of an object store.
//!
//! A local directory is the only backend so far. Everything below [`BlobStore::open_local`] works
//! with any [`ObjectStore`].

use std::{
    fs::{self, DirBuilder},
    io,
    ops::Range,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use chrono::{DateTime, Utc};
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

use crate::state_dir::PRIVATE_FILE;

/// The most parts that are being written while the next one is read.
const MAX_PENDING_PARTS: usize = 2;
/// The bytes read from a local file at once: enough for few system calls, and little memory with
/// many readers.
const CHUNK: usize = 256 << 10;

/// Why an operation of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("no such blob")]
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

/// Why a blob was not stored.
#[derive(Debug, thiserror::Error)]
pub enum PutError<E> {
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The content ended with an error.
    #[error("{0}")]
    Source(E),
    #[error("received more than {0} bytes")]
    TooLong(u64),
    #[error("not received within {0:?}")]
    Timeout(Duration),
}

/// The most bytes of a blob, and how long its content may take to arrive.
#[derive(Debug, Clone, Copy)]
pub struct PutLimits {
    pub bytes: u64,
    pub time: Duration,
}

/// The blob store. Clones share it.
#[derive(Debug, Clone)]
pub struct BlobStore {
    store: Arc<dyn ObjectStore>,
    directory: PathBuf,
}

impl BlobStore {
    /// Opens a store in a local directory, creating it if it is missing.
    ///
    /// Removes files that a killed process left incomplete, so no other process may use the
    /// directory. Other files than those of blobs whose key is `is_own` stay.
    pub fn open_local(directory: &Path, is_own: fn(&str) -> bool) -> io::Result<BlobStore> {
        let mut private = DirBuilder::new();
        private.mode(0o700).recursive(true).create(directory)?;
        remove_incomplete(directory, "", is_own)?;
        let store = LocalFileSystem::new_with_prefix(directory).map_err(io::Error::other)?;
        Ok(BlobStore {
            // Synced, because the caller removes the source of a stored blob. The blob must
            // survive a power failure after that.
            store: Arc::new(store.with_fsync(true)),
            directory: directory.to_owned(),
        })
    }

    /// Stores `content` under `key`, replacing an existing blob, and returns its size. Readers see
    /// the old blob or the complete new one.
    pub async fn put<E>(
        &self,
        key: &str,
        content: impl Stream<Item = Result<Bytes, E>>,
        limits: PutLimits,
    ) -> Result<u64, PutError<E>> {
        let deadline = Instant::now() + limits.time;
        let upload = self.store.put_multipart(&Key::from(key)).await;
        let mut upload = WriteMultipart::new(upload.map_err(BlobError::from)?);
        let mut content = std::pin::pin!(content);
        let mut size = 0;
        // The deadline covers the content, not the store's own writes.
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
                    let ready = upload.wait_for_capacity(MAX_PENDING_PARTS).await;
                    ready
                        .map(|()| upload.put(chunk))
                        .map_err(|error| PutError::Blob(error.into()))
                }
            };
            if let Err(error) = written {
                if let Err(error) = upload.abort().await {
                    tracing::warn!(key, %error, "cannot abort upload; its parts are removed at the next start");
                }
                return Err(error);
            }
        }
        upload.finish().await.map_err(BlobError::from)?;
        self.make_private(key).await?;
        Ok(size)
    }

    /// Makes the file of a blob readable by its owner only. The directory already is.
    async fn make_private(&self, key: &str) -> Result<(), BlobError> {
        let mode = fs::Permissions::from_mode(PRIVATE_FILE);
        let changed = tokio::fs::set_permissions(self.directory.join(key), mode).await;
        changed.map_err(to_store_error)
    }

    /// Reads a range of a blob. The read completes even if the blob is removed meanwhile.
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
            // The store's own stream reads small chunks.
            GetResultPayload::File(file, _) => {
                use tokio::io::AsyncSeekExt;
                let mut file = File::from_std(file);
                let position = file.seek(io::SeekFrom::Start(range.start)).await;
                position.map_err(to_store_error)?;
                ReaderStream::with_capacity(file.take(length), CHUNK).boxed()
            }
            GetResultPayload::Stream(stream) => stream.map_err(io::Error::other).boxed(),
        })
    }

    /// Returns the size of a blob, or `None` if it does not exist.
    pub async fn size(&self, key: &str) -> Result<Option<u64>, BlobError> {
        match self.store.head(&Key::from(key)).await {
            Ok(found) => Ok(Some(found.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a blob. Succeeds if it does not exist.
    pub async fn remove(&self, key: &str) -> Result<(), BlobError> {
        match self.store.delete(&Key::from(key)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Lists the keys of all blobs below `prefix`.
    pub async fn list(&self, prefix: &str) -> Result<Vec<String>, BlobError> {
        let found = self.store.list(Some(&Key::from(prefix)));
        let keys = found.map_ok(|found| found.location.to_string());
        Ok(keys.try_collect().await?)
    }

    /// Lists the keys of the blobs below `prefix` that were stored before `before`.
    pub async fn list_older_than(
        &self,
        prefix: &str,
        before: DateTime<Utc>,
    ) -> Result<Vec<String>, BlobError> {
        let mut found = self.store.list(Some(&Key::from(prefix)));
        let mut keys = Vec::new();
        while let Some(found) = found.try_next().await? {
            if found.last_modified < before {
                keys.push(found.location.to_string());
            }
        }
        Ok(keys)
    }
}

fn to_store_error(error: io::Error) -> BlobError {
    BlobError::Store(object_store::Error::Generic {
        store: "local",
        source: error.into(),
    })
}

/// Removes the temporary files of interrupted writes below `prefix`. `LocalFileSystem` writes a
/// blob to its path with `#` and a number appended, and renames it when it is complete.
fn remove_incomplete(directory: &Path, prefix: &str, is_own: fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str() else { continue };
        // Links are neither followed nor removed.
        let kind = entry.file_type()?;
        if kind.is_dir() {
            remove_incomplete(&path, &format!("{prefix}{name}/"), is_own)?;
            continue;
        }
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_incomplete = name
            .rsplit_once('#')
            .is_some_and(|(name, number)| is_number(number) && is_own(&format!("{prefix}{name}")));
        if kind.is_file() && is_incomplete {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    const LIMITS: PutLimits = PutLimits {
        bytes: 64 << 20,
        time: Duration::from_secs(60),
    };

    fn is_own(key: &str) -> bool {
        key.starts_with("a/") || !key.contains('/')
    }

    fn store() -> (tempfile::TempDir, BlobStore) {
        let directory = tempfile::tempdir().unwrap();
        let blobs = BlobStore::open_local(&directory.path().join("blobs"), is_own).unwrap();
        (directory, blobs)
    }

    fn chunks(count: usize) -> impl Stream<Item = io::Result<Bytes>> {
        stream::iter((0..count).map(|n| Ok(Bytes::from(vec![n as u8; 1 << 20]))))
    }

    async fn read(blobs: &BlobStore, key: &str, range: Range<u64>) -> Vec<u8> {
        let stream = blobs.get(key, range).await.unwrap();
        let chunks: Vec<Bytes> = stream.try_collect().await.unwrap();
        chunks.concat()
    }

    #[tokio::test]
    async fn blob_is_stored_completely_and_read_in_ranges() {
        let (_directory, blobs) = store();
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
    async fn interrupted_put_leaves_only_the_old_blob() {
        let (directory, blobs) = store();
        blobs.put("a", chunks(1), LIMITS).await.unwrap();
        let broken = chunks(12).chain(stream::iter([Err(io::Error::other("gone"))]));
        let error = blobs.put("a", broken, LIMITS).await.unwrap_err();
        assert!(matches!(error, PutError::Source(_)));
        assert_eq!(blobs.size("a").await.unwrap(), Some(1 << 20));
        let files = fs::read_dir(directory.path().join("blobs")).unwrap();
        assert_eq!(files.count(), 1);
    }

    #[tokio::test]
    async fn put_rejects_content_over_the_byte_or_time_limit() {
        let (directory, blobs) = store();
        let bytes = (2 << 20) - 1;
        let long = blobs
            .put("a", chunks(2), PutLimits { bytes, ..LIMITS })
            .await;
        assert!(matches!(long, Err(PutError::TooLong(limit)) if limit == bytes));
        let never = chunks(1).chain(stream::pending());
        let time = Duration::from_millis(50);
        let late = blobs.put("a", never, PutLimits { time, ..LIMITS }).await;
        assert!(matches!(late, Err(PutError::Timeout(limit)) if limit == time));
        let exact = PutLimits {
            bytes: 1 << 20,
            ..LIMITS
        };
        assert_eq!(blobs.put("b", chunks(1), exact).await.unwrap(), 1 << 20);
        let files = fs::read_dir(directory.path().join("blobs")).unwrap();
        assert_eq!(files.count(), 1);
    }

    #[tokio::test]
    async fn open_removes_incomplete_files() {
        let (directory, blobs) = store();
        blobs.put("a/one", chunks(1), LIMITS).await.unwrap();
        let directory = directory.path().join("blobs");
        fs::write(directory.join("a/two#1"), "half").unwrap();
        // Files of another program.
        fs::create_dir(directory.join("other")).unwrap();
        let others = ["other/report#2026", "a/two#x"].map(|name| directory.join(name));
        for path in &others {
            fs::write(path, "").unwrap();
        }
        let link = directory.join("a/link#1");
        std::os::unix::fs::symlink(&others[0], &link).unwrap();
        let blobs = BlobStore::open_local(&directory, is_own).unwrap();
        assert!(!directory.join("a/two#1").exists());
        for path in others.iter().chain([&link]) {
            assert!(path.exists(), "{}", path.display());
        }
        assert_eq!(blobs.size("a/one").await.unwrap(), Some(1 << 20));
    }

    #[tokio::test]
    async fn blobs_are_readable_by_their_owner_only() {
        let (directory, blobs) = store();
        blobs.put("a/one", chunks(1), LIMITS).await.unwrap();
        let found = fs::metadata(directory.path().join("blobs/a/one")).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, PRIVATE_FILE);
    }
}
