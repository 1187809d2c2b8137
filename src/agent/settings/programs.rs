//! Finding the programs that the agent starts.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::system::script::location::find_script_worker;

/// The locations in which distributions install Chromium. The programs come before the scripts that
/// start them, because a script costs time and an additional process.
const CHROMIUM_LOCATIONS: [&str; 6] = [
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
];

/// Finds Chromium by its name or path, or in [`CHROMIUM_LOCATIONS`].
pub(super) fn find_chromium(name: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(name) = name {
        return find_program(name).map(resolve_start_script);
    }
    let mut locations = CHROMIUM_LOCATIONS.iter().map(PathBuf::from);
    let found = locations.find(|path| is_program(path));
    found.ok_or_else(|| {
        let locations = CHROMIUM_LOCATIONS.join(", ");
        format!("not found in the usual locations ({locations}); install it or set its path")
    })
}

/// Replaces Debian's start script by the program, if that is in its usual location.
fn resolve_start_script(path: PathBuf) -> PathBuf {
    let program = Path::new("/usr/lib/chromium/chromium");
    if path == Path::new("/usr/bin/chromium") && is_program(program) {
        return program.to_owned();
    }
    path
}

/// Returns the path of the script worker, which is installed with this program.
pub(super) fn own_script_worker() -> Result<PathBuf, String> {
    let agent = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(find_script_worker(&agent))
}

/// Returns the absolute path of a program. A name without directories is looked up in `PATH`.
#[expect(
    clippy::disallowed_methods,
    reason = "PATH is not a setting of the agent"
)]
pub(super) fn find_program(name: &Path) -> Result<PathBuf, String> {
    if name.components().count() > 1 {
        if !is_program(name) {
            return Err(format!("{} is not a program", name.display()));
        }
        return std::path::absolute(name).map_err(|error| error.to_string());
    }
    let path = std::env::var_os("PATH");
    let directories = path.iter().flat_map(std::env::split_paths);
    let found = directories
        .map(|directory| directory.join(name))
        .find(|path| is_program(path));
    found.ok_or_else(|| {
        let name = name.display();
        format!("no `{name}` in PATH; install it or set its path")
    })
}

fn is_program(path: &Path) -> bool {
    let metadata = fs::metadata(path);
    metadata.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
