//! Which session a host runs, recorded in its directory: the recordings that are found there after
//! a crash belong to it.

use std::{fs, io, path::PathBuf, sync::Arc};

use parking_lot::Mutex;

use crate::{api::ids::BrowserId, state_dir::replace_file};

/// The file in the directory of a host.
const FILE: &str = "session";

/// The record of the session of one host. Clones share it.
#[derive(Debug, Clone)]
pub struct SessionRecord {
    file: PathBuf,
    current: Arc<Mutex<Option<BrowserId>>>,
}

impl SessionRecord {
    /// Reads the record in the directory of a host. An unreadable one counts as none.
    pub(super) fn read(host: &std::path::Path) -> SessionRecord {
        let file = host.join(FILE);
        let text = fs::read_to_string(&file).ok();
        let recorded = text.and_then(|text| text.trim().parse().ok());
        // Earlier versions had a directory for each session.
        let named = || host.file_name()?.to_str()?.parse().ok();
        SessionRecord {
            current: Arc::new(Mutex::new(recorded.or_else(named))),
            file,
        }
    }

    /// Records the session that the host runs from now on.
    pub fn set(&self, session: &BrowserId) -> io::Result<()> {
        replace_file(&self.file, session.as_str().as_bytes())?;
        *self.current.lock() = Some(session.clone());
        Ok(())
    }

    /// Returns the session that the host runs, or ran last.
    pub fn get(&self) -> Option<BrowserId> {
        self.current.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_again_and_an_earlier_directory_has_its_session_as_name() {
        let directory = tempfile::tempdir().unwrap();
        let host = directory.path().join("host_a");
        fs::create_dir(&host).unwrap();
        assert_eq!(SessionRecord::read(&host).get(), None);
        for session in [BrowserId::generate(), BrowserId::generate()] {
            SessionRecord::read(&host).set(&session).unwrap();
            assert_eq!(SessionRecord::read(&host).get(), Some(session));
        }
        let session = BrowserId::generate();
        let earlier = directory.path().join(session.as_str());
        assert_eq!(SessionRecord::read(&earlier).get(), Some(session));
    }
}
