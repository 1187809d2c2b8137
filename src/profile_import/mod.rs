//! The command `berth profile import`: a profile of Chrome or Chromium on this machine becomes one
//! of control.
//!
//! ```text
//! profile ─► copy of what can be imported ─► cookies encrypted anew ─► archive ─► inspection
//!                                                                          └─► upload, or a file
//! ```
//!
//! The profile itself is only read. Everything else of it is listed as not imported.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use secrecy::SecretString;
use tempfile::TempDir;
use tokio::{process::Command, task::spawn_blocking, time};

use crate::{
    api::fs::CompressionLevel,
    control::profiles::inspection::{InspectError, InspectLimits, Inspection, inspect},
    shutdown::Shutdown,
    system::{
        files::archive::{self, ArchiveFormat, ArchiveSource, OpenSourceError},
        profile::{
            cookie_cipher::CookieKey,
            cookie_rewrite::{
                CookieRewriteError, UndecryptedCookies, has_key_ring_cookies, rewrite_cookies,
            },
        },
    },
};

mod not_imported;
mod options;
mod report;
mod source;
mod upload;

use not_imported::NotImported;
use options::Destination;
pub use options::{ImportConfig, ImportOptions};
pub use report::Imported;
use report::Stored;
use source::{Source, SourceError};
use upload::{ImportClient, ImportRequestError};

/// The program that looks passwords up in the key ring, and the longest wait for it. It may ask the
/// user to unlock the key ring.
const KEY_RING_PROGRAM: &str = "secret-tool";
const KEY_RING_TIMEOUT: Duration = Duration::from_secs(60);
/// The most attempts to remove a directory in which files are being created.
const MAX_REMOVAL_ATTEMPTS: u32 = 100;
/// The applications whose passwords are tried.
const APPLICATIONS: [&str; 2] = ["chrome", "chromium"];

/// Why a profile was not imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("cannot read the profile: {0}")]
    OpenSource(#[from] OpenSourceError),
    #[error("cannot copy the profile: {0}")]
    Copy(io::Error),
    #[error("cannot read the cookies: {0}")]
    Cookies(#[from] CookieRewriteError),
    #[error("the copy of the profile {0}")]
    Inspect(#[from] InspectError),
    #[error("{path}: {source}")]
    Output { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Upload(#[from] ImportRequestError),
    #[error("interrupted")]
    Interrupted,
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
}

/// The archive, with what it has and lacks.
struct Packed {
    archive: File,
    bytes: u64,
    inspection: Inspection,
    not_imported: NotImported,
}

/// Imports a profile. SIGTERM and SIGINT end that; the copy of the profile is removed then, too.
///
/// # Errors
/// If the profile cannot be read, control does not accept it, or a signal arrives.
pub async fn import(config: ImportConfig) -> Result<Imported, ImportError> {
    let source = Source::find(&config.directory, &config.profile_directory)?;
    if !config.live {
        source.check_not_running()?;
    }
    let shutdown = Shutdown::on_signals().map_err(ImportError::Signals)?;
    let work = tempfile::Builder::new()
        .prefix("berth-import-")
        .tempdir()
        .map_err(ImportError::Copy)?;
    let imported = tokio::select! {
        imported = import_in(work.path(), source, config) => Some(imported),
        () = shutdown.requested() => None,
    };
    match imported {
        Some(imported) => imported,
        None => {
            remove_in_use(work).map_err(ImportError::Copy)?;
            Err(ImportError::Interrupted)
        }
    }
}

/// Removes a directory in which a thread may still create files, which fails from then on.
fn remove_in_use(directory: TempDir) -> io::Result<()> {
    let path = directory.keep();
    // The thread knows the files by this path.
    let removed = path.with_extension("removed");
    fs::rename(&path, &removed)?;
    let mut attempts = 1;
    loop {
        match fs::remove_dir_all(&removed) {
            Err(error)
                if error.kind() == io::ErrorKind::DirectoryNotEmpty
                    && attempts < MAX_REMOVAL_ATTEMPTS =>
            {
                attempts += 1;
            }
            result => return result,
        }
    }
}

/// Imports a profile by way of a copy in `work`.
async fn import_in(
    work: &Path,
    source: Source,
    config: ImportConfig,
) -> Result<Imported, ImportError> {
    let packed = pack(source, config.key_ring_password, work).await?;
    let stored = match config.destination {
        Destination::File(path) => {
            write_output(packed.archive, path.clone()).await?;
            Stored::File(path)
        }
        Destination::Control {
            name,
            url,
            api_key,
            project,
        } => {
            let client = ImportClient::new(&url, &api_key, project.as_deref())?;
            client.create_profile(&name).await?;
            let uploading = client.upload(&name, packed.archive, packed.bytes);
            let version = uploading.await?;
            Stored::Profile { name, version }
        }
    };
    Ok(Imported {
        stored,
        bytes: packed.bytes,
        inspection: packed.inspection,
        not_imported: packed.not_imported,
    })
}

/// Copies the profile into `work`, and makes an unnamed archive of the copy.
async fn pack(
    source: Source,
    password: Option<SecretString>,
    work: &Path,
) -> Result<Packed, ImportError> {
    let (user_data, scratch) = (work.join("user-data"), work.join("scratch"));
    let (copied, logins) = (user_data.clone(), work.join("logins"));
    let copying = spawn_blocking(move || {
        let mut not_imported = NotImported::of(&source, &logins);
        source.copy(&copied, &mut not_imported)?;
        Ok::<_, ImportError>(not_imported)
    });
    let mut not_imported = copying.await.map_err(join_error)??;
    let keys = key_ring_keys(&user_data, password).await?;
    let undecrypted = rewrite_copy(user_data.clone(), keys).await?;
    not_imported.add_cookies(&undecrypted);
    let packing = spawn_blocking(move || {
        fs::create_dir(&scratch).map_err(ImportError::Copy)?;
        let archive = tempfile::tempfile_in(&scratch).map_err(ImportError::Copy)?;
        let out = archive.try_clone().map_err(ImportError::Copy)?;
        let source = ArchiveSource::open(&user_data)?.strict_excluding(|_| false);
        let format = ArchiveFormat::TarZstd(CompressionLevel::default());
        archive::write(&source, format, out).map_err(ImportError::Copy)?;
        let bytes = archive.metadata().map_err(ImportError::Copy)?.len();
        rewind(&archive)?;
        let inspection = inspect(&archive, &scratch, InspectLimits::UPLOAD)?;
        rewind(&archive)?;
        Ok::<_, ImportError>((archive, bytes, inspection))
    });
    let (archive, bytes, inspection) = packing.await.map_err(join_error)??;
    Ok(Packed {
        archive,
        bytes,
        inspection,
        not_imported,
    })
}

fn rewind(mut file: &File) -> Result<(), ImportError> {
    io::Seek::rewind(&mut file).map_err(ImportError::Copy)
}

fn join_error(error: tokio::task::JoinError) -> ImportError {
    ImportError::Copy(io::Error::other(error))
}

/// Returns the database of cookies in a copy, if there is one.
fn cookie_database(user_data: &Path) -> Option<PathBuf> {
    let database = user_data.join(source::COPIED_PROFILE).join("Cookies");
    database.is_file().then_some(database)
}

/// Returns the keys of the key ring to be tried: that of the given password, or those that the key
/// ring has, if a cookie needs one. Chromium uses an empty password when its key ring fails.
async fn key_ring_keys(
    user_data: &Path,
    password: Option<SecretString>,
) -> Result<Vec<CookieKey>, ImportError> {
    let mut passwords = vec![SecretString::default()];
    if let Some(password) = password {
        passwords.push(password);
    } else {
        let database = cookie_database(user_data);
        let checking = spawn_blocking(move || match database {
            Some(database) => has_key_ring_cookies(&database),
            None => Ok(false),
        });
        if checking.await.map_err(join_error)?? {
            for application in APPLICATIONS {
                passwords.extend(look_up_password(application).await);
            }
        }
    }
    Ok(passwords.iter().map(CookieKey::from_password).collect())
}

/// Returns the password of an application in the key ring of the user, if there is one.
async fn look_up_password(application: &str) -> Option<SecretString> {
    let mut command = Command::new(KEY_RING_PROGRAM);
    command
        .args(["lookup", "application", application])
        .kill_on_drop(true);
    let output = time::timeout(KEY_RING_TIMEOUT, command.output()).await;
    let output = output.ok()?.ok()?;
    let password = String::from_utf8(output.stdout).ok()?;
    let password = password.trim_end_matches('\n');
    (output.status.success() && !password.is_empty()).then(|| SecretString::from(password))
}

async fn rewrite_copy(
    user_data: PathBuf,
    keys: Vec<CookieKey>,
) -> Result<UndecryptedCookies, ImportError> {
    let rewriting = spawn_blocking(move || match cookie_database(&user_data) {
        Some(database) => rewrite_cookies(&database, keys),
        None => Ok(UndecryptedCookies::new()),
    });
    Ok(rewriting.await.map_err(join_error)??)
}

/// Writes the archive to a new file that only its owner can read.
async fn write_output(mut archive: File, path: PathBuf) -> Result<(), ImportError> {
    let to = path.clone();
    let writing = spawn_blocking(move || {
        let directory = match to.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        io::copy(&mut archive, &mut file)?;
        file.as_file().sync_all()?;
        file.persist_noclobber(&to).map_err(|error| error.error)?;
        Ok(())
    });
    let written = writing.await.map_err(join_error)?;
    written.map_err(|source| ImportError::Output { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_in_use_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let work = TempDir::new_in(parent.path()).unwrap();
        let path = work.path().join("user-data");
        fs::create_dir(&path).unwrap();
        let creating = std::thread::spawn(move || {
            let mut number = 0;
            while File::create_new(path.join(number.to_string())).is_ok() {
                number += 1;
            }
        });
        remove_in_use(work).unwrap();
        creating.join().unwrap();
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
