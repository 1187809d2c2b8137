//! Why control does not start, or stops.

use std::{io, net::SocketAddr};

use super::{
    blobs::{BlobError, OpenS3Error, SharedDirectoryError},
    fleet::registered::AuthorityError,
    replays::ReplayError,
    secrets::{SecretError, ring_source::RingSourceError},
    settings::SettingsError,
    state_dir::StateDirError,
    store::{Displaced, OpenError, StoreError},
};
use crate::system::outbound::OutboundSetupError;

/// Why control does not start, or stops.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    #[error("cannot open the database: {0}")]
    OpenStore(#[from] OpenError),
    #[error("cannot use the database: {0}")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Displaced(#[from] Displaced),
    #[error(
        "the database {database} is empty, but {blobs} contains replays or profiles; restore the database from a backup, or move them away to start without them"
    )]
    DatabaseLost { database: String, blobs: String },
    #[error(transparent)]
    FleetAuthority(#[from] AuthorityError),
    #[error(transparent)]
    SecretsKeys(#[from] RingSourceError),
    #[error("cannot use stored secrets: {0}")]
    Secrets(#[from] SecretError),
    #[error(transparent)]
    Outbound(#[from] OutboundSetupError),
    #[error("cannot open the blob store: {0}")]
    OpenDirectory(io::Error),
    #[error("cannot open the blob store {0}")]
    OpenShared(#[from] SharedDirectoryError),
    #[error("cannot open the blob store {0}")]
    OpenBucket(#[from] OpenS3Error),
    #[error("cannot use the {0}")]
    Blobs(#[from] BlobError),
    #[error("cannot recover the replays of an earlier run: {0}")]
    Replays(#[from] ReplayError),
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("cannot serve: {0}")]
    Serve(io::Error),
    #[error("shutdown did not complete within {0} s")]
    ShutdownTimeout(u64),
}
