//! The limit on the number of open files of this process.

use std::sync::OnceLock;

use nix::{
    libc::rlim_t,
    sys::resource::{Resource, getrlimit, setrlimit},
};

/// The soft limit of most systems.
const USUAL_LIMIT: rlim_t = 1024;

static INHERITED: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Raises the soft limit to the hard limit.
///
/// The usual soft limit of 1,024 exists for programs that use `select`. Every connection of this
/// process needs one or two descriptors.
pub fn raise_limit() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    let _ = INHERITED.set((soft, hard));
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_err() {
        tracing::warn!(limit = soft, "cannot raise the limit on open files");
    }
}

/// Returns the soft and hard limit from before [`raise_limit`], for programs that rely on them.
#[must_use]
pub fn inherited_limit() -> Option<(rlim_t, rlim_t)> {
    INHERITED.get().copied()
}

/// Returns the number of descriptors that this process may have open.
#[must_use]
pub fn limit() -> usize {
    // If it cannot be read, the usual soft limit is assumed.
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL_LIMIT, |(soft, _)| soft);
    usize::try_from(soft).unwrap_or(usize::MAX)
}
