//! Uploads in parts, and the record of those in progress.
//!
//! A service keeps the parts of an upload that is neither completed nor aborted, invisible and at
//! a cost. So each upload in progress has a file with its id, and one whose file remains after
//! the work on it has ended, because the process was killed or the service could not be reached, is
//! aborted later.

use std::{collections::HashSet, io, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use object_store::{
    MultipartId, MultipartUpload, PutPayload, PutResult, UploadPart,
    aws::AmazonS3,
    multipart::{MultipartStore, PartId},
    path::Path as Key,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use super::S3Config;

/// The size of a part in bytes.
pub(in crate::control::blobs) const PART_BYTES: usize = 8 << 20;
/// The most parts of an upload that services accept.
const MAX_PARTS: u64 = 10_000;
/// The size of the largest blob in bytes.
pub(in crate::control::blobs) const MAX_UPLOAD_BYTES: u64 = MAX_PARTS * PART_BYTES as u64;

/// Uploads to a bucket. Clones share their record.
#[derive(Clone)]
pub(in crate::control::blobs) struct S3Uploads {
    inner: Arc<Inner>,
}

struct Inner {
    bucket: AmazonS3,
    prefix: Key,
    store_name: String,
    /// Has a file for each upload in progress.
    directory: PathBuf,
    /// The names of the files of this process's uploads.
    active: Mutex<HashSet<String>>,
}

/// The content of the file of an upload.
#[derive(Serialize, Deserialize)]
struct UploadRecord {
    path: String,
    upload_id: MultipartId,
}

impl S3Uploads {
    /// Returns the uploads to `bucket`, which are recorded in `directory`.
    pub(in crate::control::blobs) fn new(
        bucket: AmazonS3,
        config: &S3Config,
        directory: PathBuf,
    ) -> S3Uploads {
        S3Uploads {
            inner: Arc::new(Inner {
                bucket,
                prefix: config.prefix.clone(),
                store_name: config.to_string(),
                directory,
                active: Mutex::default(),
            }),
        }
    }

    pub(in crate::control::blobs) fn store_name(&self) -> &str {
        &self.inner.store_name
    }

    /// Starts the upload of a blob.
    pub(in crate::control::blobs) async fn start(
        &self,
        key: &Key,
    ) -> object_store::Result<RecordedUpload> {
        let Inner { bucket, prefix, .. } = &*self.inner;
        let path: Key = prefix.parts().chain(key.parts()).collect();
        let id = bucket.create_multipart(&path).await?;
        let name = Ulid::generate().to_string();
        self.inner.active.lock().insert(name.clone());
        let upload = RecordedUpload {
            uploads: self.clone(),
            record: UploadRecord {
                path: path.to_string(),
                upload_id: id,
            },
            path,
            name,
            started_parts: 0,
            parts: Arc::default(),
        };
        // A full disk must not prevent what makes room on it.
        if let Err(error) = upload.write_record().await {
            tracing::warn!(%error, "cannot record an upload: it stays in the bucket if this process is killed");
        }
        Ok(upload)
    }

    /// Aborts the uploads on which no process works.
    pub(in crate::control::blobs) async fn abort_interrupted(&self) {
        let names = match self.recorded().await {
            Ok(names) => names,
            Err(error) => {
                tracing::error!(%error, "cannot list interrupted uploads");
                return;
            }
        };
        for name in names {
            if self.inner.active.lock().contains(&name) {
                continue;
            }
            match self.abort_recorded(&name).await {
                Ok(()) => tracing::info!(upload = name, "aborted interrupted upload"),
                Err(error) => {
                    tracing::warn!(upload = name, %error, "cannot abort interrupted upload; retrying within an hour");
                }
            }
        }
    }

    /// Lists the names of the files.
    async fn recorded(&self) -> io::Result<Vec<String>> {
        let mut entries = tokio::fs::read_dir(&self.inner.directory).await?;
        let mut names = Vec::new();
        while let Some(entry) = entries.next_entry().await? {
            names.extend(entry.file_name().into_string());
        }
        Ok(names)
    }

    async fn abort_recorded(&self, name: &str) -> object_store::Result<()> {
        let content = tokio::fs::read(self.inner.directory.join(name)).await;
        // Incomplete if the machine has failed while it was written.
        let content = content.unwrap_or_default();
        if let Ok(record) = serde_json::from_slice::<UploadRecord>(&content) {
            let path = Key::from(record.path);
            self.abort(&path, &record.upload_id).await?;
        }
        self.forget(name).await;
        Ok(())
    }

    /// Aborts an upload. Succeeds if it does not exist.
    async fn abort(&self, path: &Key, id: &MultipartId) -> object_store::Result<()> {
        match self.inner.bucket.abort_multipart(path, id).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            result => result,
        }
    }

    /// Removes the file of an upload that has ended.
    async fn forget(&self, name: &str) {
        let removed = tokio::fs::remove_file(self.inner.directory.join(name)).await;
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(upload = name, %error, "cannot remove the record of an upload");
        }
    }
}

/// An upload in progress.
pub(in crate::control::blobs) struct RecordedUpload {
    uploads: S3Uploads,
    record: UploadRecord,
    path: Key,
    name: String,
    started_parts: usize,
    /// The uploaded parts, in the order in which they have arrived.
    parts: Arc<Mutex<Vec<(usize, PartId)>>>,
}

impl std::fmt::Debug for RecordedUpload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "upload of {}", self.path)
    }
}

impl RecordedUpload {
    async fn write_record(&self) -> io::Result<()> {
        let content = serde_json::to_vec(&self.record)?;
        tokio::fs::write(self.uploads.inner.directory.join(&self.name), content).await
    }
}

#[async_trait]
impl MultipartUpload for RecordedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let index = self.started_parts;
        self.started_parts += 1;
        let bucket = self.uploads.inner.bucket.clone();
        let (path, id) = (self.path.clone(), self.record.upload_id.clone());
        let parts = self.parts.clone();
        Box::pin(async move {
            let part = bucket.put_part(&path, &id, index, data).await?;
            parts.lock().push((index, part));
            Ok(())
        })
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        let mut parts = std::mem::take(&mut *self.parts.lock());
        parts.sort_unstable_by_key(|(index, _)| *index);
        let parts = parts.into_iter().map(|(_, part)| part).collect();
        let bucket = &self.uploads.inner.bucket;
        let id = &self.record.upload_id;
        let completed = bucket.complete_multipart(&self.path, id, parts).await?;
        self.uploads.forget(&self.name).await;
        Ok(completed)
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        self.uploads
            .abort(&self.path, &self.record.upload_id)
            .await?;
        self.uploads.forget(&self.name).await;
        Ok(())
    }
}

impl Drop for RecordedUpload {
    fn drop(&mut self) {
        self.uploads.inner.active.lock().remove(&self.name);
    }
}
