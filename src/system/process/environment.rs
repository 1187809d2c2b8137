//! The environment: the part of it that children receive, and its removal from this process's
//! initial memory.
//!
//! ```text
//! /proc/<pid>/environ of ...       has
//! servers, once they have started  `PLAIN`, `HELPER` and the mark of a client process
//! helper programs, local agents    `PLAIN`, `HELPER`, and what is set for them
//! Chromium, client programs        `PLAIN`, and what is set for them
//! ```

use std::{
    ffi::{CStr, OsStr, OsString, c_char},
    os::unix::ffi::OsStrExt,
    sync::LazyLock,
};

use tokio::process::Command;

use super::tree;

/// Search path, language and time zone, which every program may see. `LC_` variables belong to
/// them.
const PLAIN: [&str; 4] = ["PATH", "LANG", "LANGUAGE", "TZ"];
const PLAIN_PREFIX: &str = "LC_";
/// The directories and the sound server that programs of the operator need to find their files.
const HELPER: [&str; 7] = [
    "HOME",
    "LD_LIBRARY_PATH",
    "PULSE_COOKIE",
    "PULSE_SERVER",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
];
/// The directories for programs if the environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn is_plain(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PLAIN_PREFIX.as_bytes())
        || PLAIN.iter().any(|plain| name == OsStr::new(plain))
}

fn is_helper(name: &OsStr) -> bool {
    is_plain(name) || HELPER.iter().any(|helper| name == OsStr::new(helper))
}

/// Returns the part of our environment that third-party programs may see: search path, language
/// and time zone. The rest may hold secrets.
pub(in crate::system) fn plain() -> &'static [(OsString, OsString)] {
    static PLAIN: LazyLock<Vec<(OsString, OsString)>> = LazyLock::new(|| select(is_plain));
    &PLAIN
}

#[expect(
    clippy::disallowed_methods,
    reason = "passes a part of the environment on"
)]
fn select(is_selected: impl Fn(&OsStr) -> bool) -> Vec<(OsString, OsString)> {
    let mut selected: Vec<_> = std::env::vars_os()
        .filter(|(name, _)| is_selected(name))
        .collect();
    if !selected.iter().any(|(name, _)| name == "PATH") {
        selected.push(("PATH".into(), DEFAULT_PATH.into()));
    }
    selected
}

/// The part of our environment that a child receives, besides the variables set on its command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Inherited {
    /// Search path, language and time zone.
    Plain,
    /// Also the directories of the operator and the sound server.
    Helper,
}

impl Inherited {
    fn variables(self) -> Vec<(OsString, OsString)> {
        match self {
            Inherited::Plain => plain().to_vec(),
            Inherited::Helper => select(is_helper),
        }
    }
}

/// Limits what the child inherits. Variables that are set or removed on `command` stay so.
pub(super) fn limit(command: &mut Command, inherited: Inherited) {
    let own =
        |(name, value): (&OsStr, Option<&OsStr>)| (name.to_owned(), value.map(OsStr::to_owned));
    let changes: Vec<_> = command.as_std().get_envs().map(own).collect();
    command.env_clear().envs(inherited.variables());
    for (name, value) in changes {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// Removes a variable that is for this program alone, and returns its value.
///
/// Must be called before the process starts a thread.
#[expect(
    unsafe_code,
    clippy::disallowed_methods,
    reason = "set by the program before, not by a user"
)]
pub(super) fn take(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    // SAFETY: the process has one thread.
    unsafe { std::env::remove_var(name) };
    Some(value)
}

/// Erases the initial environment of this process, which other processes of its user can read in
/// `/proc/<pid>/environ`, except for what children receive. The variables keep their values for
/// this process.
///
/// Must be called once, before the process starts a thread.
#[expect(unsafe_code, reason = "the C library has no function for this")]
pub fn erase_initial() {
    let erased: Vec<_> = initial_entries()
        .into_iter()
        .filter(|(name, ..)| !is_helper(name) && name != tree::MARK)
        .collect();
    for (name, value, _) in &erased {
        // SAFETY: the process has one thread. The C library now refers to a copy.
        unsafe { std::env::set_var(name, value) };
    }
    for (name, value, start) in erased {
        let length = name.len() + "=".len() + value.len();
        // SAFETY: the kernel has put this string of that length into writable memory. Only a
        // second variable of one name still refers to it, and is empty then.
        unsafe { std::ptr::write_bytes(start, 0, length) };
    }
}

/// Returns the name, the value and the address of each variable.
#[expect(unsafe_code, reason = "std does not return addresses")]
fn initial_entries() -> Vec<(OsString, OsString, *mut c_char)> {
    unsafe extern "C" {
        static mut environ: *const *mut c_char;
    }
    let mut entries = Vec::new();
    // SAFETY: the process has one thread. The list and its strings end with null.
    unsafe {
        let mut next = environ;
        while !next.is_null() && !(*next).is_null() {
            let entry = CStr::from_ptr(*next).to_bytes();
            if let Some(at) = entry
                .iter()
                .position(|byte| *byte == b'=')
                .filter(|at| *at > 0)
            {
                let [name, value] = [&entry[..at], &entry[at + 1..]];
                let owned = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
                entries.push((owned(name), owned(value), *next));
            }
            next = next.add(1);
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_receives_only_listed_variables_and_those_set_for_it() {
        let mut command = Command::new("x");
        command
            .env("BERTH_AGENT_START_URL", "about:blank")
            .env_remove("TZ");
        limit(&mut command, Inherited::Plain);
        let set: Vec<_> = command
            .as_std()
            .get_envs()
            .filter(|(_, value)| value.is_some())
            .map(|(name, _)| name.to_owned())
            .collect();
        assert!(set.contains(&"PATH".into()), "{set:?}");
        assert!(set.contains(&"BERTH_AGENT_START_URL".into()), "{set:?}");
        assert!(!set.contains(&"TZ".into()), "{set:?}");
        let others = set.iter().filter(|name| !is_plain(name)).count();
        assert_eq!(others, 1, "{set:?}");
    }

    #[test]
    fn operator_variables_are_no_plain_ones() {
        for name in ["PATH", "LANG", "LC_ALL", "TZ"] {
            assert!(is_plain(OsStr::new(name)), "{name}");
        }
        assert!(is_helper(OsStr::new("HOME")) && !is_plain(OsStr::new("HOME")));
        for name in [
            "BERTH_AGENT_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "LD_PRELOAD",
            "PATHS",
        ] {
            assert!(!is_helper(OsStr::new(name)), "{name}");
        }
    }
}
