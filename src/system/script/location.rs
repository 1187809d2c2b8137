//! The locations of the script worker and of other private programs.

use std::path::{Path, PathBuf};

/// The file name of the script worker.
pub const SCRIPT_WORKER: &str = "berth-script";
/// The file name of its snapshot, which is beside it.
pub const SNAPSHOT: &str = "berth-script.snapshot";
/// The directory of private programs, below the parent of the program's directory.
const PRIVATE_DIRECTORY: &str = "lib/berth";

/// Returns the path of a private program that is installed with `own`, if there is one.
pub fn find_private_program(own: &Path, name: &str) -> Option<PathBuf> {
    let prefix = own.parent().and_then(Path::parent);
    let private = prefix.map(|prefix| prefix.join(PRIVATE_DIRECTORY).join(name));
    private.filter(|path| path.is_file())
}

/// Returns the path of the script worker that belongs to an agent's program: in `../lib/berth`,
/// where packages install it, or else beside the program. It may be missing.
pub fn find_script_worker(agent: &Path) -> PathBuf {
    let installed = find_private_program(agent, SCRIPT_WORKER);
    installed.unwrap_or_else(|| agent.with_file_name(SCRIPT_WORKER))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn worker_is_among_the_private_programs_or_beside_the_program() {
        let directory = tempfile::tempdir().unwrap();
        let [programs, private] = ["bin", "lib/berth"].map(|name| directory.path().join(name));
        fs::create_dir_all(&programs).unwrap();
        fs::create_dir_all(&private).unwrap();
        let agent = programs.join("berth");
        assert_eq!(find_script_worker(&agent), programs.join("berth-script"));
        fs::write(private.join("berth-script"), "").unwrap();
        assert_eq!(find_script_worker(&agent), private.join("berth-script"));
    }
}
