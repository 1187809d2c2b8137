//! Helpers to create, list and unpack files.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Cursor,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Returns the directory that a variable names, which the command sets.
pub fn directory_of(variable: &str, command: &str) -> PathBuf {
    let path = env::var_os(variable);
    PathBuf::from(path.unwrap_or_else(|| panic!("{variable} is not set; run {command}")))
}

/// Returns incompressible bytes; the same ones on each call.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// An entry of a directory tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Directory { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Link { target: PathBuf },
    Other,
}

/// Returns everything below a directory, by relative path.
pub fn tree(root: &Path) -> BTreeMap<PathBuf, Node> {
    let mut nodes = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = metadata.mode() & 0o7777;
            let node = match () {
                () if metadata.is_symlink() => Node::Link {
                    target: fs::read_link(&path).unwrap(),
                },
                () if metadata.is_dir() => {
                    directories.push(path.clone());
                    Node::Directory { mode }
                }
                () if metadata.is_file() => Node::File {
                    mode,
                    content: fs::read(&path).unwrap(),
                },
                () => Node::Other,
            };
            nodes.insert(path.strip_prefix(root).unwrap().to_owned(), node);
        }
    }
    nodes
}

/// Returns the files of a zip archive by name.
pub fn unzipped(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = zip::ZipArchive::new(Cursor::new(archive)).unwrap();
    let mut files = BTreeMap::new();
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).unwrap();
        let mut content = Vec::new();
        std::io::copy(&mut file, &mut content).unwrap();
        files.insert(file.name().unwrap().into_owned(), content);
    }
    files
}

/// Unpacks a zstd-compressed tar archive with the system's `tar`.
pub fn untar(archive: &[u8], into: &Path) {
    let tar = zstd::decode_all(archive).unwrap();
    let file = into.with_extension("tar");
    fs::write(&file, tar).unwrap();
    fs::create_dir(into).unwrap();
    let unpacked = std::process::Command::new("tar")
        .args(["--extract", "--preserve-permissions", "--file"])
        .arg(&file)
        .arg("--directory")
        .arg(into)
        .status()
        .unwrap();
    assert!(unpacked.success());
    fs::remove_file(file).unwrap();
}
