//! The profile service: stored user-data directories that browsers start with.
//!
//! - [`save`]: stores an archive, reads it again, and publishes it as a new version.
//! - [`receive`]: receives and inspects the archive before.
//! - [`load`]: restores the current version in a browser; [`clear`]: starts one anew.
//! - [`attachment`]: makes a loaded profile that of a browser that runs.
//! - [`spool`]: receives an archive into a private file.
//! - [`inspection`]: reads an archive and lists what it contains.
//! - [`operation`]: saves and loads in progress.
//! - [`project_permits`]: limits what one project, and all, do at once.
//! - [`collection`]: removes archives that no version has.
//!
//! ```text
//! agent, or upload ──▶ spool file ──────▶ blob store ──▶ read again: SHA-256 ──▶ version
//!                      (SHA-256)          (its key)                              (receipt)
//!                          └──▶ inspection
//! version ──▶ blob store ──▶ agent of a new browser
//! ```

use std::{collections::HashSet, io, ops::Range, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use chrono::Utc;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::io::{StreamReader, SyncIoBridge};
use ulid::Ulid;

use super::{
    blobs::{BlobError, BlobKeys, BlobStore},
    fleet::AgentError,
    store::{
        CreateProfileError, DeleteProfileOutcome, ProfileListing, ProfileRow, ProfileVersionRow,
        RestoreOutcome, Store, StoreError, UniqueConstraint,
    },
};
use crate::{
    api::{
        ids::{ProfileId, ProjectId},
        profiles::{ProfileName, ProfileRef},
    },
    shutdown::Shutdown,
    system::files::archive::decompress,
};

mod attachment;
mod clear;
mod collection;
pub mod inspection;
mod load;
mod operation;
mod project_permits;
mod receive;
mod save;
mod spool;
#[cfg(test)]
mod tests;

use inspection::InspectError;
use project_permits::ProjectPermits;
pub use save::{BrowserSave, EndingSave};

/// The most ending browsers, the most browsers that go on, and the most received uploads that are
/// saved at once. Others wait. Each has its own limit, so that none holds up the others.
const MAX_SAVES: usize = 4;
/// The most uploads that have a file while they are received and stored: all, and those of a
/// project.
const MAX_UPLOAD_SPOOLS: usize = 16;
const MAX_PROJECT_UPLOAD_SPOOLS: usize = 8;
/// The most archives that are decompressed for downloads at once: all, and those of a project. A
/// slow client takes as long as it likes.
const MAX_DECOMPRESSED_DOWNLOADS: usize = 8;
const MAX_PROJECT_DECOMPRESSED_DOWNLOADS: usize = 4;
/// The keys of the archives in the blob store.
pub const BLOBS: BlobKeys = BlobKeys {
    prefix: "profiles",
    includes: |key| blob_of(key).is_some(),
};

/// Why an operation on a profile failed.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("no profile with that id or name")]
    NotFound,
    #[error("another profile of the project has that name")]
    NameTaken,
    #[error("the project is archived or deleted")]
    ProjectInactive,
    #[error("the profile is in use")]
    InUse,
    #[error("the pool {0} starts its browsers with the profile")]
    UsedByPool(String),
    #[error("the auth connection {0} logs the profile in")]
    UsedByConnection(String),
    #[error("an auth connection of the same domain has a profile with that name")]
    ConnectionExists,
    #[error("the profile has no version yet")]
    Empty,
    #[error("no version of the profile with that number")]
    VersionNotFound,
    #[error("another version of the profile was published since the save began")]
    Superseded,
    #[error("cannot receive the archive: {0}")]
    Source(#[from] ArchiveSourceError),
    #[error("the archive has more than {0} bytes")]
    TooLarge(u64),
    #[error("the archive was not received within {0:?}")]
    Timeout(Duration),
    #[error("the archive cannot be used: {0}")]
    Inspect(#[from] InspectError),
    #[error("the stored archive differs from what was received")]
    Corrupt,
    #[error("cannot restore the archive: {0}")]
    Restore(AgentError),
    #[error("too many {0} are in progress")]
    Busy(&'static str),
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error(transparent)]
    Store(StoreError),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error("cannot write the archive: {0}")]
    Io(#[from] io::Error),
    #[error("background task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Why an archive ended before it was complete.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveSourceError {
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("the body is incomplete")]
    Incomplete,
    #[error("received nothing for {0:?}")]
    IdleTimeout(Duration),
}

impl ProfileError {
    /// Returns the reason for clients. The log has the complete one, which may name addresses and
    /// directories.
    #[must_use]
    pub fn public_reason(&self) -> String {
        match self {
            ProfileError::Source(ArchiveSourceError::Agent(_)) => {
                "the browser did not provide its user data".to_owned()
            }
            ProfileError::Inspect(InspectError::Io(_))
            | ProfileError::Corrupt
            | ProfileError::Restore(_)
            | ProfileError::Store(_)
            | ProfileError::Blob(_)
            | ProfileError::Io(_)
            | ProfileError::Task(_) => "the server could not store the profile".to_owned(),
            error => error.to_string(),
        }
    }
}

impl From<StoreError> for ProfileError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UniqueViolation(UniqueConstraint::ProfileLiveName) => {
                ProfileError::NameTaken
            }
            StoreError::UniqueViolation(UniqueConstraint::ProfileSave) => ProfileError::InUse,
            StoreError::UniqueViolation(UniqueConstraint::AuthConnection) => {
                ProfileError::ConnectionExists
            }
            other => ProfileError::Store(other),
        }
    }
}

impl From<CreateProfileError> for ProfileError {
    fn from(error: CreateProfileError) -> Self {
        match error {
            CreateProfileError::ProjectInactive => ProfileError::ProjectInactive,
            CreateProfileError::Store(error) => error.into(),
        }
    }
}

/// The limits of profiles.
#[derive(Debug, Clone, Copy)]
pub struct ProfileLimits {
    /// The most versions of a profile. Older ones are deleted.
    pub versions: u32,
    /// The most bytes of an archive.
    pub archive_bytes: u64,
}

/// The profile service. Clones share its state.
#[derive(Clone)]
pub struct Profiles {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    blobs: BlobStore,
    /// The directory of the files into which archives are received.
    spool: PathBuf,
    limits: ProfileLimits,
    shutdown: Shutdown,
    ending_saves: Semaphore,
    live_saves: Semaphore,
    uploads: Semaphore,
    upload_spools: Arc<ProjectPermits>,
    decompressed_downloads: Arc<ProjectPermits>,
    /// The saves, the loads and the removed archives on which this process works.
    active: Mutex<HashSet<String>>,
}

impl Profiles {
    pub fn new(
        store: Store,
        blobs: BlobStore,
        spool: PathBuf,
        limits: ProfileLimits,
        shutdown: Shutdown,
    ) -> Profiles {
        Profiles {
            inner: Arc::new(Inner {
                store,
                blobs,
                spool,
                limits,
                shutdown,
                ending_saves: Semaphore::new(MAX_SAVES),
                live_saves: Semaphore::new(MAX_SAVES),
                uploads: Semaphore::new(MAX_SAVES),
                upload_spools: ProjectPermits::new(MAX_UPLOAD_SPOOLS, MAX_PROJECT_UPLOAD_SPOOLS),
                decompressed_downloads: ProjectPermits::new(
                    MAX_DECOMPRESSED_DOWNLOADS,
                    MAX_PROJECT_DECOMPRESSED_DOWNLOADS,
                ),
                active: Mutex::default(),
            }),
        }
    }

    /// Creates a profile without content.
    pub async fn create(
        &self,
        project: &ProjectId,
        name: Option<&ProfileName>,
    ) -> Result<ProfileRow, ProfileError> {
        let name = name.map(ProfileName::as_str);
        let store = &self.inner.store;
        Ok(store.create_profile(project, name, Utc::now()).await?)
    }

    /// Finds a profile by its id or its name.
    pub async fn get(
        &self,
        project: &ProjectId,
        id_or_name: &str,
    ) -> Result<ProfileRow, ProfileError> {
        match parse_reference(id_or_name) {
            Some(reference) => self.find(project, &reference).await,
            None => Err(ProfileError::NotFound),
        }
    }

    /// Finds a profile by its id or its name.
    pub async fn find(
        &self,
        project: &ProjectId,
        reference: &ProfileRef,
    ) -> Result<ProfileRow, ProfileError> {
        let store = &self.inner.store;
        let found = match reference {
            ProfileRef::Id(id) => store.find_profile(project, id).await?,
            ProfileRef::Name(name) => store.find_profile_named(project, name.as_str()).await?,
        };
        found.ok_or(ProfileError::NotFound)
    }

    /// Finds a profile by its id or its name, and creates one that has the name if there is none.
    pub async fn find_or_create(
        &self,
        project: &ProjectId,
        reference: &ProfileRef,
    ) -> Result<ProfileRow, ProfileError> {
        let found = self.find(project, reference).await;
        let (Err(ProfileError::NotFound), ProfileRef::Name(name)) = (&found, reference) else {
            return found;
        };
        match self.create(project, Some(name)).await {
            // Another request was faster.
            Err(ProfileError::NameTaken) => self.find(project, reference).await,
            created => created,
        }
    }

    /// Lists profiles, newest first, with one more than the limit if there are more.
    pub async fn list(
        &self,
        project: &ProjectId,
        listing: &ProfileListing,
    ) -> Result<Vec<ProfileRow>, ProfileError> {
        Ok(self.inner.store.list_profiles(project, listing).await?)
    }

    /// Changes the name of a profile.
    pub async fn rename(
        &self,
        project: &ProjectId,
        id_or_name: &str,
        name: Option<&ProfileName>,
    ) -> Result<ProfileRow, ProfileError> {
        let row = self.get(project, id_or_name).await?;
        let Some(name) = name else {
            return Ok(row);
        };
        let store = &self.inner.store;
        let renamed = store.rename_profile(project, &row.id, name.as_str(), Utc::now());
        renamed.await?.ok_or(ProfileError::NotFound)
    }

    /// Deletes a profile with its versions.
    pub async fn delete(&self, project: &ProjectId, id_or_name: &str) -> Result<(), ProfileError> {
        let row = self.get(project, id_or_name).await?;
        let store = &self.inner.store;
        match store.delete_profile(project, &row.id, Utc::now()).await? {
            DeleteProfileOutcome::Deleted(blobs) => {
                self.remove_in_background(blobs);
                Ok(())
            }
            DeleteProfileOutcome::NotFound => Err(ProfileError::NotFound),
            DeleteProfileOutcome::InUse => Err(ProfileError::InUse),
            DeleteProfileOutcome::UsedByPool(pool) => Err(ProfileError::UsedByPool(pool)),
            DeleteProfileOutcome::UsedByConnection(id) => Err(ProfileError::UsedByConnection(id)),
        }
    }

    /// Returns a page of the versions of a profile, newest first, with one more than the limit if
    /// there are more.
    pub async fn versions(
        &self,
        profile: &ProfileRow,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<ProfileVersionRow>, ProfileError> {
        let store = &self.inner.store;
        let versions = store.list_profile_versions(&profile.id, offset, limit);
        Ok(versions.await?)
    }

    /// Publishes a new version with the archive of an earlier one.
    pub async fn restore(
        &self,
        project: &ProjectId,
        id_or_name: &str,
        version: u64,
    ) -> Result<ProfileVersionRow, ProfileError> {
        let row = self.get(project, id_or_name).await?;
        let Inner { store, limits, .. } = &*self.inner;
        let kept = limits.versions;
        let restored = store.restore_profile_version(&row.id, version, kept, Utc::now());
        match restored.await? {
            RestoreOutcome::Published {
                version,
                retired_blobs,
            } => {
                self.remove_in_background(retired_blobs);
                Ok(*version)
            }
            RestoreOutcome::NotFound => Err(ProfileError::NotFound),
            RestoreOutcome::VersionNotFound => Err(ProfileError::VersionNotFound),
            RestoreOutcome::InUse => Err(ProfileError::InUse),
        }
    }

    /// Returns the current version of a profile.
    pub async fn current_version(&self, id: &ProfileId) -> Result<ProfileVersionRow, ProfileError> {
        let current = self.inner.store.find_current_profile_version(id).await?;
        current.ok_or(ProfileError::Empty)
    }

    /// Reads a range of a version's archive.
    pub async fn read(
        &self,
        version: &ProfileVersionRow,
        range: Range<u64>,
    ) -> Result<BoxStream<'static, io::Result<Bytes>>, ProfileError> {
        Ok(self
            .inner
            .blobs
            .get(&blob_key(&version.blob), range)
            .await?)
    }

    /// Reads the decompressed archive of a version of a project's profile.
    pub async fn read_decompressed(
        &self,
        project: &ProjectId,
        version: &ProfileVersionRow,
    ) -> Result<BoxStream<'static, io::Result<Bytes>>, ProfileError> {
        let permit = self.inner.decompressed_downloads.try_acquire(project);
        let permit = permit.ok_or(ProfileError::Busy("decompressed downloads"))?;
        let stored = self.read(version, 0..version.size_bytes).await?;
        let stored = SyncIoBridge::new(StreamReader::new(stored));
        let mut chunks = decompress(stored)?;
        let chunks = stream::poll_fn(move |context| {
            let _held = &permit;
            chunks.poll_recv(context)
        });
        Ok(chunks.boxed())
    }
}

/// Parses an id or a name.
fn parse_reference(text: &str) -> Option<ProfileRef> {
    match text.parse() {
        Ok(id) => Some(ProfileRef::Id(id)),
        Err(_) => ProfileName::parse(text.to_owned())
            .ok()
            .map(ProfileRef::Name),
    }
}

/// Returns the name of a new archive with that SHA-256. No other archive has the name, even if it
/// has the same content, so that a delayed removal of an archive never reaches another one.
fn new_blob(digest: &str) -> String {
    format!("{digest}-{}", Ulid::generate())
}

/// Returns the key of the archive with that name in the blob store.
fn blob_key(blob: &str) -> String {
    format!("{}/{blob}", BLOBS.prefix)
}

/// Returns the name of the archive with that key. `None` for other keys.
fn blob_of(blob_key: &str) -> Option<&str> {
    let blob = blob_key.strip_prefix(BLOBS.prefix)?.strip_prefix('/')?;
    // Earlier versions have stored archives without an id.
    let (digest, id) = match blob.split_once('-') {
        Some((digest, id)) => (digest, Some(id)),
        None => (blob, None),
    };
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_digest = digest.len() == 64 && digest.bytes().all(is_digit);
    let has_id = id.is_none_or(|id| id.parse::<Ulid>().is_ok_and(|ulid| ulid.to_string() == id));
    (is_digest && has_id).then_some(blob)
}
