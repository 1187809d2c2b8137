//! The changes that clients have made to a session's browser. They are stored, so that an agent
//! that is started again continues the session with them. The next session starts without them.

use std::{fs, io};

use serde::{Deserialize, Serialize};
use url::Url;

use crate::{agent::session_dir::SessionDir, api::viewport::Viewport, state_dir::replace_file};

/// The changes. `None` means that the configuration applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Changes {
    pub(super) viewport: Option<Viewport>,
    pub(super) start_url: Option<Url>,
}

impl Changes {
    /// Reads the changes of an earlier agent. Without a usable file there are none.
    pub(super) fn read(session_dir: &SessionDir) -> Self {
        let read = fs::read(session_dir.browser_changes());
        let parsed = read.and_then(|text| Ok(serde_json::from_slice(&text)?));
        parsed.unwrap_or_else(|error: io::Error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(%error, "cannot read the changes to the browser");
            }
            Self::default()
        })
    }

    /// Stores the changes. A failure is only logged: they apply until the agent ends.
    pub(super) fn store(&self, session_dir: &SessionDir) {
        let text = serde_json::to_vec(self).map_err(io::Error::from);
        let path = session_dir.browser_changes();
        if let Err(error) = text.and_then(|text| replace_file(&path, &text)) {
            tracing::warn!(%error, "cannot store the changes to the browser");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::state_dir::StateDir;

    #[test]
    fn changes_are_read_as_stored_and_damaged_ones_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let session_dir = StateDir::new(directory.path()).unwrap().session(1);
        fs::create_dir_all(session_dir.run()).unwrap();
        assert_eq!(Changes::read(&session_dir), Changes::default());
        let changes = Changes {
            viewport: Some(Viewport::default()),
            start_url: Some(Url::parse("https://example.com/").unwrap()),
        };
        changes.store(&session_dir);
        assert_eq!(Changes::read(&session_dir), changes);
        fs::write(session_dir.browser_changes(), "{").unwrap();
        assert_eq!(Changes::read(&session_dir), Changes::default());
    }
}
