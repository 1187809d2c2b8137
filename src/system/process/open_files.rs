//! How many files this process may have open.

use std::sync::OnceLock;

use nix::{
    libc::rlim_t,
    sys::resource::{Resource, getrlimit, setrlimit},
};

static INHERITED: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Takes all that the system allows. The usual 1,024 are for programs that use `select`; each connection here takes one or two.
pub fn raise_limit() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    let _ = INHERITED.set((soft, hard));
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_err() {
        tracing::warn!(limit = soft, "the limit on open files stays low");
    }
}

/// The limits as they were before, for programs that may count on them.
pub fn inherited_limit() -> Option<(rlim_t, rlim_t)> {
    INHERITED.get().copied()
}
