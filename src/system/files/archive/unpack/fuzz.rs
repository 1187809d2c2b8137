//! Hostile archives: whatever they contain, nothing outside the destination changes.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use proptest::{prelude::*, sample::Index};
use tar::EntryType;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{
    EntryVisitor, UnpackError, UnpackLimits, check_tar_zstd, raw_tar::TarEntry, raw_zip::ZipEntry,
    unpack_tar_zstd, unpack_zip,
};

pub(crate) const LIMITS: UnpackLimits = UnpackLimits {
    bytes: 64 << 10,
    ratio: 200,
};
/// The longest content of an entry. It exceeds the limit.
const MAX_CONTENT: usize = 80_000;
/// The limit on the memory of the process, in KiB.
const MAX_MEMORY_KIB: u64 = 512 << 10;
/// A prefix of names that stands for the directory with everything a test can see.
const VISIBLE: &str = "{visible}";
const CONTENT: &[u8] = b"content of another directory";
/// The error of a frame that needs a larger window than `MAX_WINDOW_LOG`.
const WINDOW_TOO_LARGE: &str = "cannot be read: Frame requires too much memory for decoding";

/// An entry, with a type as in `st_mode`.
#[derive(Debug, Clone)]
struct HostileEntry {
    name: String,
    kind: u32,
    permissions: u32,
    content: Vec<u8>,
    /// The target of a link.
    target: String,
    is_hard_link: bool,
    claimed_size: Option<u32>,
    flags: u16,
    method: u16,
}

/// The damage to an archive.
#[derive(Debug, Clone)]
pub(crate) enum Damage {
    None,
    Truncated(Index),
    Flipped(Vec<(Index, u8)>),
    Removed(Index, Index),
}

impl Damage {
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            _ if bytes.is_empty() => {}
            Damage::None => {}
            Damage::Truncated(length) => bytes.truncate(length.index(bytes.len())),
            Damage::Flipped(flips) => {
                for (index, bits) in flips {
                    let index = index.index(bytes.len());
                    bytes[index] ^= bits;
                }
            }
            Damage::Removed(from, count) => {
                let from = from.index(bytes.len());
                let count = count.index(bytes.len() - from);
                bytes.drain(from..from + count);
            }
        }
    }
}

pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => Just(Damage::None),
        1 => any::<Index>().prop_map(Damage::Truncated),
        2 => prop::collection::vec((any::<Index>(), any::<u8>()), 1..6).prop_map(Damage::Flipped),
        1 => any::<(Index, Index)>().prop_map(|(from, count)| Damage::Removed(from, count)),
    ]
}

/// Returns paths of few names, so that entries often meet: on one path, or one below the other.
fn path() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        6 => prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned),
        2 => prop::sample::select(vec!["..", ".", "", "ü", "\\", "a\0b"]).prop_map(str::to_owned),
        1 => Just("long".repeat(70)),
    ];
    let start = prop::sample::select(vec!["", "", "", "", "", "../", "/", VISIBLE]);
    let end = prop::sample::select(vec!["", "", "", "/"]);
    let names = prop::collection::vec(name, 1..4);
    (start, names, end).prop_map(|(start, names, end)| format!("{start}{}{end}", names.join("/")))
}

fn entry() -> impl Strategy<Value = HostileEntry> {
    let kind = prop_oneof![
        6 => Just(0o100_000),
        3 => Just(0o040_000),
        5 => Just(0o120_000),
        1 => prop::sample::select(vec![0, 0o020_000, 0o060_000, 0o010_000, 0o140_000, 0o170_000]),
    ];
    let content = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (0..MAX_CONTENT).prop_map(|length| vec![0; length]),
    ];
    let claimed = prop_oneof![
        8 => Just(None),
        1 => prop::sample::select(vec![0, 1, 1 << 20, u32::MAX - 1, u32::MAX]).prop_map(Some),
    ];
    let flags = prop_oneof![12 => Just(0), 1 => any::<u16>()];
    let method = prop_oneof![12 => Just(0), 1 => prop::sample::select(vec![8, 12, 93, 99])];
    let links = (path(), prop::bool::weighted(0.2));
    (
        path(),
        kind,
        0..0o10000u32,
        content,
        links,
        claimed,
        (flags, method),
    )
        .prop_map(
            |(name, kind, permissions, content, (target, is_hard_link), claimed_size, coding)| {
                HostileEntry {
                    name,
                    kind,
                    permissions,
                    content,
                    target,
                    is_hard_link,
                    claimed_size,
                    flags: coding.0,
                    method: coding.1,
                }
            },
        )
}

/// A hostile archive, complete but for the paths that depend on the test's directory.
#[derive(Debug, Clone)]
pub(crate) struct HostileArchive(Vec<HostileEntry>);

pub(crate) fn hostile_archive() -> impl Strategy<Value = HostileArchive> {
    prop::collection::vec(entry(), 0..8).prop_map(HostileArchive)
}

impl HostileArchive {
    /// Returns the zip archive. Absolute paths lead below `visible`.
    pub(crate) fn zip(&self, visible: &Path) -> Vec<u8> {
        let entries = self.0.iter().map(|entry| {
            let is_link = entry.kind == 0o120_000;
            let content = match is_link {
                true => located(&entry.target, visible).into_bytes(),
                false => entry.content.clone(),
            };
            ZipEntry {
                name: located(&entry.name, visible).into_bytes(),
                mode: entry.kind | entry.permissions,
                content,
                claimed_size: entry.claimed_size,
                flags: entry.flags,
                method: entry.method,
            }
        });
        ZipEntry::archive(&entries.collect::<Vec<_>>())
    }

    fn tar(&self, visible: &Path) -> Vec<u8> {
        let mut archive = Vec::new();
        for entry in &self.0 {
            let kind = match entry.kind {
                _ if entry.is_hard_link => EntryType::Link,
                0o100_000 => EntryType::Regular,
                0o040_000 => EntryType::Directory,
                0o120_000 => EntryType::Symlink,
                0o020_000 => EntryType::Char,
                0o060_000 => EntryType::Block,
                0o010_000 => EntryType::Fifo,
                0o140_000 => EntryType::GNUSparse,
                0o170_000 => EntryType::XHeader,
                _ => EntryType::XGlobalHeader,
            };
            let is_link = matches!(kind, EntryType::Link | EntryType::Symlink);
            let (name, target) = (
                located(&entry.name, visible),
                located(&entry.target, visible),
            );
            let content = if is_link { &[][..] } else { &entry.content };
            archive.push(TarEntry {
                kind,
                name: name.into_bytes(),
                target: if is_link {
                    target.into_bytes()
                } else {
                    Vec::new()
                },
                mode: entry.permissions,
                content: content.to_vec(),
                claimed_size: entry.claimed_size.map(u64::from),
            });
        }
        TarEntry::archive(&archive)
    }
}

fn located(path: &str, visible: &Path) -> String {
    path.replacen(VISIBLE, &format!("{}/", visible.display()), 1)
}

/// A directory with files around the destination of an archive.
struct Surrounded {
    directory: TempDir,
}

impl Surrounded {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Deep enough for the `..` of a path.
        fs::create_dir_all(directory.path().join("x/y/into")).unwrap();
        for parent in ["", "x", "x/y"] {
            let parent = directory.path().join(parent);
            fs::write(parent.join("a"), CONTENT).unwrap();
            fs::create_dir(parent.join("b")).unwrap();
        }
        Surrounded { directory }
    }

    fn visible(&self) -> &Path {
        self.directory.path()
    }

    fn destination(&self) -> PathBuf {
        self.directory.path().join("x/y/into")
    }

    fn check(&self, result: &Result<(), UnpackError>) {
        for (parent, names) in [
            ("", vec!["a", "b", "x"]),
            ("x", vec!["a", "b", "y"]),
            ("x/y", vec!["a", "b", "into"]),
        ] {
            let parent = self.directory.path().join(parent);
            let mut found: Vec<_> = fs::read_dir(&parent)
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            found.sort();
            assert_eq!(found, names);
            assert_eq!(fs::read(parent.join("a")).unwrap(), CONTENT);
            let metadata = fs::metadata(parent.join("a")).unwrap();
            assert_eq!((metadata.mode() & 0o7777, metadata.nlink()), (0o644, 1));
            let inner = fs::metadata(parent.join("b")).unwrap();
            assert_eq!(inner.permissions().mode() & 0o7777, 0o755);
            assert_eq!(fs::read_dir(parent.join("b")).unwrap().count(), 0);
        }
        let into = self.destination().canonicalize().unwrap();
        let size = check_tree(&into, &into);
        assert!(size <= LIMITS.bytes, "{size} bytes after {result:?}");
        let memory = peak_memory_kib();
        assert!(memory < MAX_MEMORY_KIB, "{memory} KiB");
    }
}

/// Checks what was unpacked: only files, directories and links that stay inside `root`, without
/// set-ID bits. Returns the total size of the files.
fn check_tree(directory: &Path, root: &Path) -> u64 {
    let mut size = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        let kind = metadata.file_type();
        if kind.is_symlink() {
            if let Ok(target) = path.canonicalize() {
                assert!(target.starts_with(root), "{path:?} leads to {target:?}");
            }
            continue;
        }
        assert!(kind.is_dir() || kind.is_file(), "{path:?}");
        assert_eq!(metadata.mode() & 0o7000, 0, "{path:?}");
        size += match kind.is_dir() {
            true => check_tree(&path, root),
            false => metadata.len(),
        };
    }
    size
}

fn peak_memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse().unwrap()
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

proptest! {
    #[test]
    fn zip_changes_nothing_outside_its_destination(
        archive in hostile_archive(),
        damage in damage(),
    ) {
        let surrounded = Surrounded::new();
        let mut bytes = archive.zip(surrounded.visible());
        damage.apply(&mut bytes);
        let into = File::open(surrounded.destination()).unwrap();
        let stop = CancellationToken::new();
        let result = unpack_zip(file_of(&bytes), into.into(), LIMITS, &stop);
        surrounded.check(&result);
    }

    #[test]
    fn tar_changes_nothing_outside_its_destination(
        archive in hostile_archive(),
        tar_damage in damage(),
        zstd_damage in damage(),
    ) {
        let surrounded = Surrounded::new();
        let mut bytes = archive.tar(surrounded.visible());
        tar_damage.apply(&mut bytes);
        let mut bytes = zstd::encode_all(&bytes[..], 1).unwrap();
        zstd_damage.apply(&mut bytes);
        let stop = CancellationToken::new();
        let result = unpack_tar_zstd(&bytes[..], &surrounded.destination(), LIMITS, &stop, |_| false);
        surrounded.check(&result);
    }

    #[test]
    fn check_agrees_with_unpacking(
        archive in hostile_archive(),
        tar_damage in damage(),
        zstd_damage in damage(),
    ) {
        let surrounded = Surrounded::new();
        let mut bytes = archive.tar(surrounded.visible());
        tar_damage.apply(&mut bytes);
        let mut bytes = zstd::encode_all(&bytes[..], 1).unwrap();
        zstd_damage.apply(&mut bytes);
        let stop = CancellationToken::new();
        let into = surrounded.destination();
        let unpacked = unpack_tar_zstd(&bytes[..], &into, LIMITS, &stop, |_| false);
        let mut sizes = SizeVisitor(0);
        let checked = check_tar_zstd(&bytes[..], LIMITS, |_| false, &mut sizes);
        let checked_error = checked.as_ref().err().map(ToString::to_string);
        // Unpacking accepts larger windows, so it goes on to whatever else is damaged.
        if checked_error.as_deref() == Some(WINDOW_TOO_LARGE) {
            return Ok(());
        }
        prop_assert_eq!(checked_error, unpacked.err().map(|error| error.to_string()));
        if let Ok(summary) = checked {
            prop_assert_eq!(summary.bytes, sizes.0);
            prop_assert!(summary.entries > 0);
        }
    }
}

/// Adds the sizes of the files.
struct SizeVisitor(u64);

impl EntryVisitor for SizeVisitor {
    fn visit_file(&mut self, _: &Path, content: &mut dyn Read) -> io::Result<()> {
        self.0 += io::copy(content, &mut io::sink())?;
        Ok(())
    }

    fn visit_link(&mut self, _: &Path) {}
}
