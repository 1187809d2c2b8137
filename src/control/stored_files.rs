//! The blob store of control, and the services of the files in it.

use std::{fs, path::PathBuf};

use super::{
    ControlError,
    blobs::{BlobKeys, BlobStore, settings::BlobConfig},
    profiles::{self, Profiles},
    replays::{self, Replays},
    settings::Config,
    state_dir::StateDir,
    store::Store,
};
use crate::shutdown::Shutdown;

/// The kinds of blobs.
const BLOB_KINDS: [BlobKeys; 2] = [replays::BLOBS, profiles::BLOBS];

/// Returns the directory of a kind of blobs that contains any.
pub(super) fn local_blobs(state_dir: &StateDir) -> Option<String> {
    let mut directories = BLOB_KINDS
        .iter()
        .map(|keys| state_dir.blobs().join(keys.prefix));
    let has_any = |directory: &PathBuf| {
        fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
    };
    let found = directories.find(has_any);
    found.map(|directory| directory.display().to_string())
}

/// Opens the blob store. Returns with it the place of its blobs if it contains any.
pub(super) async fn open_blobs(
    state_dir: &StateDir,
    config: &BlobConfig,
) -> Result<(BlobStore, Option<String>), ControlError> {
    let blobs = match config {
        BlobConfig::StateDir => {
            let blobs = BlobStore::open_directory(&state_dir.blobs(), &BLOB_KINDS);
            let blobs = blobs.map_err(ControlError::OpenDirectory)?;
            return Ok((blobs, local_blobs(state_dir)));
        }
        BlobConfig::Shared(directory) => BlobStore::open_shared(directory, &BLOB_KINDS)?,
        BlobConfig::S3(config) => BlobStore::open_s3(config, state_dir.uploads()).await?,
    };
    for keys in BLOB_KINDS {
        if blobs.has_any(keys).await? {
            let place = blobs.to_string();
            return Ok((blobs, Some(place)));
        }
    }
    Ok((blobs, None))
}

/// Returns the services of the files in the blob store.
pub(super) fn stored_files(
    config: &Config,
    state_dir: &StateDir,
    store: &Store,
    blobs: BlobStore,
    shutdown: &Shutdown,
) -> Result<(Replays, Profiles), ControlError> {
    let (orphaned, spool) = (
        state_dir.orphaned_recordings(),
        state_dir.clear_profile_spool()?,
    );
    let replays = Replays::new(
        store.clone(),
        blobs.clone(),
        orphaned,
        config.replay_quota,
        shutdown.clone(),
    );
    let limits = config.profile_limits;
    let profiles = Profiles::new(store.clone(), blobs, spool, limits, shutdown.clone());
    Ok((replays, profiles))
}
