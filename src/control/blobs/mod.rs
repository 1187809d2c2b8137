//! Storage for files that outlive their browsers, behind the interface of an object store: a
//! directory ([`directory`]), or a bucket of an S3-compatible service ([`s3`]).

mod directory;
mod s3;
pub mod settings;

use std::{
    fmt, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::{Stream, StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{
    GetOptions, GetResultPayload, ObjectMeta, ObjectStore, ObjectStoreExt, WriteMultipart,
    path::Path as Key, prefix::PrefixStore,
};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt},
    time::{Instant, timeout_at},
};
use tokio_util::io::ReaderStream;

pub use directory::SharedDirectoryError;
use directory::{Directory, Incomplete};
use s3::upload::{MAX_UPLOAD_BYTES, PART_BYTES, S3Uploads};
pub use s3::{OpenS3Error, S3Config};

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
    Local(object_store::Error),
    /// The service cannot be reached, or refuses a request. Or the file system of a shared
    /// directory is not mounted.
    #[error("blob store: {0}")]
    Remote(object_store::Error),
}

impl BlobError {
    /// Returns whether the disk of a local store is full.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        let causes = std::iter::successors(self.local_cause(), |&cause| cause.source());
        let kinds = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
        kinds.map(io::Error::kind).any(|kind| {
            use io::ErrorKind::{QuotaExceeded, StorageFull};
            matches!(kind, StorageFull | QuotaExceeded)
        })
    }

    fn local_cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BlobError::Local(error) => Some(error),
            BlobError::NotFound | BlobError::Remote(_) => None,
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

/// The keys of a kind of blobs.
#[derive(Debug, Clone, Copy)]
pub struct BlobKeys {
    /// The first segment, which all of them have in common. A second one follows.
    pub prefix: &'static str,
    /// Whether a key is one of them.
    pub includes: fn(&str) -> bool,
}

/// A blob that is being stored.
enum Upload {
    Directory(Incomplete),
    Bucket(WriteMultipart),
}

/// The blob store. Clones share it.
#[derive(Clone)]
pub struct BlobStore {
    store: Arc<dyn ObjectStore>,
    place: Place,
}

/// The place of the blobs.
#[derive(Clone)]
enum Place {
    Directory(Directory),
    Bucket(S3Uploads),
}

/// Names the store in messages, without credentials.
impl fmt::Display for BlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Directory(directory) => directory.path().display().fmt(f),
            Place::Bucket(uploads) => uploads.store_name().fmt(f),
        }
    }
}

impl fmt::Debug for BlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl BlobStore {
    /// Opens a store in a directory that no other process uses, creating it if it is missing.
    ///
    /// Removes files of blobs of these kinds that a killed process left incomplete.
    pub fn open_directory(directory: &Path, kinds: &'static [BlobKeys]) -> io::Result<BlobStore> {
        Self::in_directory(Directory::open(directory, kinds)?)
    }

    /// Opens a store in an existing directory, which several processes may use.
    ///
    /// Removes files of blobs of these kinds that a killed process left incomplete a day ago or
    /// earlier, and does so again in [`BlobStore::abort_interrupted_uploads`].
    pub fn open_shared(
        path: &Path,
        kinds: &'static [BlobKeys],
    ) -> Result<BlobStore, SharedDirectoryError> {
        let shared = Directory::open_shared(path, kinds)?;
        Self::in_directory(shared).map_err(|source| directory::io_error(path, source))
    }

    fn in_directory(directory: Directory) -> io::Result<BlobStore> {
        Ok(BlobStore {
            store: Arc::new(directory.store()?),
            place: Place::Directory(directory),
        })
    }

    /// Opens a store in a bucket, which several processes may use. Uploads in progress are recorded
    /// in the directory `uploads`, which no other process may use.
    ///
    /// # Errors
    /// Fails if the bucket does not exist, or does not permit an operation of the store.
    pub async fn open_s3(config: &S3Config, uploads: PathBuf) -> Result<BlobStore, OpenS3Error> {
        let bucket = s3::open(config).await?;
        let uploads = S3Uploads::new(bucket.clone(), config, uploads);
        Ok(BlobStore {
            store: Arc::new(PrefixStore::new(bucket, config.prefix.clone())),
            place: Place::Bucket(uploads),
        })
    }

    /// Identifies the store among those that processes can share. `None` if it is a directory that
    /// no other process uses.
    pub fn shared_id(&self) -> Option<String> {
        match &self.place {
            Place::Directory(directory) => Some(format!("directory {}", directory.id()?)),
            Place::Bucket(uploads) => Some(uploads.store_name().to_owned()),
        }
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
        let max_bytes = limits.bytes.min(self.max_blob_bytes());
        let mut upload = self.begin_upload(key).await?;
        let mut content = std::pin::pin!(content);
        let mut size = 0;
        // The deadline covers the content, not the store's own writes.
        loop {
            let written = match timeout_at(deadline, content.next()).await {
                Ok(None) => break,
                Err(_) => Err(PutError::Timeout(limits.time)),
                Ok(Some(Err(error))) => Err(PutError::Source(error)),
                Ok(Some(Ok(chunk))) if chunk.len() as u64 > max_bytes - size => {
                    Err(PutError::TooLong(max_bytes))
                }
                Ok(Some(Ok(chunk))) => {
                    size += chunk.len() as u64;
                    self.write(&mut upload, chunk).await.map_err(Into::into)
                }
            };
            if let Err(error) = written {
                abort(upload, key).await;
                return Err(error);
            }
        }
        self.complete(upload).await?;
        Ok(size)
    }

    /// Returns whether [`BlobStore::put_file`] links files, if they are of the same file system.
    pub fn links_files(&self) -> bool {
        matches!(self.place, Place::Directory(_))
    }

    /// Stores a file without a name under an unused key, like
    /// [`BlobStore::put`]. The file must not change afterwards: in a directory of its file system,
    /// it is linked instead of copied.
    pub async fn put_file(
        &self,
        key: &str,
        file: Arc<std::fs::File>,
        limits: PutLimits,
    ) -> Result<(), PutError<io::Error>> {
        if let Place::Directory(directory) = &self.place {
            self.check_mounted().await?;
            match directory.link(key, file.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => tracing::debug!(key, %error, "copying a file that cannot be linked"),
            }
        }
        let file = file.try_clone().map_err(PutError::Source)?;
        let mut file = File::from_std(file);
        file.rewind().await.map_err(PutError::Source)?;
        let content = ReaderStream::with_capacity(file, CHUNK);
        self.put(key, content, limits).await.map(drop)
    }

    /// Returns the size of the largest blob that can be stored.
    fn max_blob_bytes(&self) -> u64 {
        match &self.place {
            Place::Directory(_) => u64::MAX,
            Place::Bucket(_) => MAX_UPLOAD_BYTES,
        }
    }

    async fn begin_upload(&self, key: &str) -> Result<Upload, BlobError> {
        match &self.place {
            Place::Directory(directory) => {
                self.check_mounted().await?;
                let incomplete = directory.create(key).await.map_err(to_local_error)?;
                Ok(Upload::Directory(incomplete))
            }
            Place::Bucket(uploads) => {
                let upload = uploads.start(&Key::from(key)).await;
                let upload = Box::new(upload.map_err(|error| self.error(error))?);
                let upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
                Ok(Upload::Bucket(upload))
            }
        }
    }

    async fn write(&self, upload: &mut Upload, chunk: Bytes) -> Result<(), BlobError> {
        match upload {
            Upload::Directory(incomplete) => {
                incomplete.write(&chunk).await.map_err(to_local_error)?;
            }
            Upload::Bucket(parts) => {
                let ready = parts.wait_for_capacity(MAX_PENDING_PARTS).await;
                ready.map_err(|error| self.error(error))?;
                parts.put(chunk);
            }
        }
        Ok(())
    }

    async fn complete(&self, upload: Upload) -> Result<(), BlobError> {
        match upload {
            Upload::Directory(incomplete) => incomplete.complete().await.map_err(to_local_error),
            Upload::Bucket(parts) => match parts.finish().await {
                Ok(_) => Ok(()),
                Err(error) => Err(self.error(error)),
            },
        }
    }

    /// Removes the parts of uploads that were interrupted. What cannot be removed is logged, and
    /// removed by a later call.
    pub async fn abort_interrupted_uploads(&self) {
        match &self.place {
            Place::Directory(directory) => directory.remove_interrupted().await,
            Place::Bucket(uploads) => uploads.abort_interrupted().await,
        }
    }

    /// Reads a range of a blob. The read completes even if the blob is removed meanwhile, unless
    /// the connection to a remote store breaks.
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
        let found = self.store.get_opts(&Key::from(key), options).await;
        let found = self.found(found).await?.ok_or(BlobError::NotFound)?;
        Ok(match found.payload {
            // The store's own stream reads small chunks.
            GetResultPayload::File(file, _) => {
                use tokio::io::AsyncSeekExt;
                let mut file = File::from_std(file);
                let position = file.seek(io::SeekFrom::Start(range.start)).await;
                position.map_err(to_local_error)?;
                ReaderStream::with_capacity(file.take(length), CHUNK).boxed()
            }
            GetResultPayload::Stream(stream) => stream.map_err(io::Error::other).boxed(),
        })
    }

    /// Returns the size of a blob, or `None` if it does not exist.
    pub async fn size(&self, key: &str) -> Result<Option<u64>, BlobError> {
        let found = self.store.head(&Key::from(key)).await;
        Ok(self.found(found).await?.map(|found| found.size))
    }

    /// Removes a blob. Succeeds if it does not exist.
    pub async fn remove(&self, key: &str) -> Result<(), BlobError> {
        let removed = self.store.delete(&Key::from(key)).await;
        self.found(removed).await?;
        Ok(())
    }

    /// Returns whether there is a blob with such a key.
    pub async fn has_any(&self, keys: BlobKeys) -> Result<bool, BlobError> {
        let mut found = self.store.list(Some(&Key::from(keys.prefix)));
        while let Some(found) = found.try_next().await.map_err(|error| self.error(error))? {
            if (keys.includes)(found.location.as_ref()) {
                return Ok(true);
            }
        }
        self.check_mounted().await?;
        Ok(false)
    }

    /// Lists the keys of all blobs below `prefix`.
    pub async fn list(&self, prefix: &str) -> Result<Vec<String>, BlobError> {
        self.list_where(prefix, |_| true).await
    }

    /// Lists the keys of the blobs below `prefix` that were stored before `before`.
    pub async fn list_older_than(
        &self,
        prefix: &str,
        before: DateTime<Utc>,
    ) -> Result<Vec<String>, BlobError> {
        self.list_where(prefix, |found| found.last_modified < before)
            .await
    }

    async fn list_where(
        &self,
        prefix: &str,
        is_listed: impl Fn(&ObjectMeta) -> bool,
    ) -> Result<Vec<String>, BlobError> {
        let mut found = self.store.list(Some(&Key::from(prefix)));
        let mut keys = Vec::new();
        while let Some(found) = found.try_next().await.map_err(|error| self.error(error))? {
            if is_listed(&found) {
                keys.push(found.location.to_string());
            }
        }
        self.check_mounted().await?;
        Ok(keys)
    }

    /// Returns what was found, or `None`.
    async fn found<T>(
        &self,
        result: Result<T, object_store::Error>,
    ) -> Result<Option<T>, BlobError> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => {
                self.check_mounted().await?;
                Ok(None)
            }
            Err(error) => Err(self.error(error)),
        }
    }

    /// Fails if the file system of a shared directory is not mounted, where nothing is found.
    async fn check_mounted(&self) -> Result<(), BlobError> {
        let Place::Directory(directory) = &self.place else {
            return Ok(());
        };
        let checked = directory.check_mounted().await;
        checked.map_err(|error| {
            metrics::counter!("berth_blob_store_failures_total").increment(1);
            BlobError::Remote(generic(error))
        })
    }

    fn error(&self, error: object_store::Error) -> BlobError {
        match (error, &self.place) {
            (object_store::Error::NotFound { .. }, _) => BlobError::NotFound,
            (error, Place::Directory(_)) => BlobError::Local(error),
            (error, Place::Bucket(_)) => {
                metrics::counter!("berth_blob_store_failures_total").increment(1);
                BlobError::Remote(error)
            }
        }
    }
}

async fn abort(upload: Upload, key: &str) {
    match upload {
        Upload::Directory(incomplete) => incomplete.remove().await,
        Upload::Bucket(parts) => {
            if let Err(error) = parts.abort().await {
                tracing::warn!(key, %error, "cannot abort upload; its parts are removed later");
            }
        }
    }
}

fn to_local_error(error: io::Error) -> BlobError {
    BlobError::Local(generic(error))
}

fn generic(error: io::Error) -> object_store::Error {
    object_store::Error::Generic {
        store: "local",
        source: error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_recognized_in_a_local_error() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(to_local_error(full).is_disk_full());
        let other = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(!to_local_error(other).is_disk_full());
    }
}
