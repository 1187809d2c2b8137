//! Removes the user data of a browser.

use futures::{StreamExt, stream};

use super::{ProfileError, Profiles};
use crate::{
    api::fs::CompressionLevel,
    control::fleet::Lease,
    system::files::archive::{ArchiveFormat, ArchiveSource, OpenSourceError, stream as archive},
};

/// A directory of an archive that has nothing else. Chromium creates it, too.
const PROFILE_DIRECTORY: &str = "Default";

impl Profiles {
    /// Replaces the user data of a browser by none. Chromium is started again, and may not respond
    /// yet.
    pub async fn clear(&self, lease: &Lease) -> Result<(), ProfileError> {
        let empty = tempfile::tempdir_in(&self.inner.spool)?;
        std::fs::create_dir(empty.path().join(PROFILE_DIRECTORY))?;
        let source = ArchiveSource::open(empty.path()).map_err(|error| match error {
            OpenSourceError::Io(error) => error,
            error @ OpenSourceError::VirtualFileSystem => std::io::Error::other(error),
        })?;
        let mut chunks = archive(
            source,
            ArchiveFormat::TarZstd(CompressionLevel::default()),
            |_| {},
        )?;
        let chunks = stream::poll_fn(move |context| chunks.poll_recv(context)).boxed();
        let restored = lease.restore_user_data(chunks, 0).await;
        restored.map_err(ProfileError::Restore)
    }
}
