//! The cookies in Chromium's memory, written to its profile.

use std::{ffi::OsStr, fs, io, path::Path, time::Duration};

use memchr::memmem;
use tokio::{task::spawn_blocking, time};
use uuid::Uuid;

use super::{
    Devtools,
    launch::{LaunchError, PROFILE},
};
use crate::system::files::{
    directory::{DirectoryHandle, descriptor_path},
    wait::DirectoryWatch,
};

/// The longest wait for cookies to be written.
const COOKIE_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes Chromium write its cookies. Returns whether the write was observed in time.
pub(super) async fn flush_cookies(
    devtools: &Devtools,
    user_data: &Path,
) -> Result<bool, LaunchError> {
    let directory = user_data.join(PROFILE);
    // Without the directory there are no cookies.
    let mut watch = DirectoryWatch::new(&directory)?;
    // Other writes, such as that of the new database, do not have the cookie of this name.
    let marker = format!("flush-{}", Uuid::new_v4().simple());
    devtools.cdp.flush_cookies(&marker).await?;
    let written = async {
        loop {
            let (user_data, marker) = (user_data.to_owned(), marker.clone());
            let found = spawn_blocking(move || has_committed_cookie(&user_data, &marker));
            // A file may be missing, or replaced, while Chromium writes.
            if found.await.map_err(io::Error::other)?.unwrap_or(false) {
                return Ok::<_, io::Error>(());
            }
            watch.changed().await?;
        }
    };
    let written = time::timeout(COOKIE_FLUSH_TIMEOUT, written).await;
    devtools.cdp.remove_flush_marker(&marker).await?;
    match written {
        Ok(written) => Ok(written.map(|()| true)?),
        Err(_) => Ok(false),
    }
}

/// Returns whether the database of cookies has a cookie, and no transaction is in progress. Follows
/// no link. Blocks.
fn has_committed_cookie(user_data: &Path, name: &str) -> io::Result<bool> {
    let profile = DirectoryHandle::open_path(user_data)?.open(PROFILE)?;
    let Some(database) = profile.entry(OsStr::new("Cookies"))? else {
        return Ok(false);
    };
    if !database.metadata()?.is_file() {
        return Ok(false);
    }
    let database = fs::read(descriptor_path(&database))?;
    let has_cookie = memmem::find(&database, name.as_bytes()).is_some();
    // The journal is empty after a completed transaction.
    let journal = profile.entry(OsStr::new("Cookies-journal"))?;
    let journal = journal.map(|journal| journal.metadata()).transpose()?;
    Ok(has_cookie && journal.is_none_or(|journal| journal.len() == 0))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_at_the_database_of_cookies_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (user_data, other) = (directory.path().join("user-data"), directory.path());
        let profile = user_data.join(PROFILE);
        fs::create_dir_all(&profile).unwrap();
        let has_cookie = || has_committed_cookie(&user_data, "flush").unwrap_or(false);
        assert!(!has_cookie());
        fs::write(other.join("Cookies"), "a flush cookie").unwrap();
        symlink(other.join("Cookies"), profile.join("Cookies")).unwrap();
        assert!(!has_cookie());
        fs::remove_file(profile.join("Cookies")).unwrap();
        fs::write(profile.join("Cookies"), "a flush cookie").unwrap();
        assert!(has_cookie());
        fs::write(profile.join("Cookies-journal"), "x").unwrap();
        assert!(!has_cookie());
        fs::remove_dir_all(&profile).unwrap();
        symlink(other, &profile).unwrap();
        assert!(!has_cookie());
    }
}
