//! The tree that the entries of an archive would make, checked without a disk.

use std::{
    collections::{HashMap, VecDeque},
    ffi::{OsStr, OsString},
    io::{self, Read},
    path::{Component, Path, PathBuf},
};

use super::{
    MAX_ENTRIES, UnpackError,
    entry_path::{entry_or_root_path, entry_path, is_valid_link_target},
    meter::Meter,
    path_of,
    staging::{Attributes, DIRECTORY_BYTES, outside_link, too_many_created},
    tar_zstd::TarDestination,
};

/// The longest name of a file or directory in bytes, as on the file systems of Linux.
const MAX_NAME_BYTES: usize = 255;
/// The limit on all names and link targets of an archive in bytes: they are held in memory.
const MAX_TOTAL_NAME_BYTES: usize = 64 << 20;
/// The limit on links that are followed for one path, as in `cap-std`.
const MAX_LINKS: usize = 40;
/// The size of the reads of what a visitor leaves unread.
const BUFFER_BYTES: usize = 256 << 10;

/// The number and size of an archive's entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveSummary {
    /// The number of files, links and directories, those included that no entry describes.
    pub entries: u64,
    /// The total size of the files.
    pub bytes: u64,
}

/// A reader of the files of an archive that is checked.
pub trait EntryVisitor {
    /// Reads as much of a file as needed.
    ///
    /// # Errors
    /// If the content cannot be read or processed.
    fn visit_file(&mut self, path: &Path, content: &mut dyn Read) -> io::Result<()>;

    /// Gets a symbolic link, or a further name of a file.
    fn visit_link(&mut self, path: &Path);
}

/// The index of a node.
type NodeId = usize;

const ROOT: NodeId = 0;

enum Node {
    Directory(HashMap<OsString, NodeId>),
    File,
    Link(PathBuf),
}

/// A destination that holds only the names of the entries.
pub(super) struct EntryTree<'a, V> {
    nodes: Vec<Node>,
    /// The paths of the symbolic links.
    links: Vec<PathBuf>,
    /// The total length of the names and link targets.
    name_bytes: usize,
    bytes: u64,
    meter: Meter,
    visitor: &'a mut V,
    buffer: Vec<u8>,
    /// The number of entries, as [`super::staging::StagingDirectory`] counts them.
    entries: usize,
}

impl<'a, V: EntryVisitor> EntryTree<'a, V> {
    pub(super) fn new(meter: Meter, visitor: &'a mut V) -> Self {
        EntryTree {
            nodes: vec![Node::Directory(HashMap::new())],
            links: Vec::new(),
            name_bytes: 0,
            bytes: 0,
            meter,
            visitor,
            buffer: vec![0; BUFFER_BYTES],
            entries: 0,
        }
    }

    /// Checks the links, which only the complete tree allows.
    pub(super) fn finish(self) -> Result<ArchiveSummary, UnpackError> {
        for link in &self.links {
            if self.leads_outside(link) {
                return Err(outside_link(link));
            }
        }
        Ok(ArchiveSummary {
            entries: self.entries as u64,
            bytes: self.bytes,
        })
    }

    /// Follows a path through the links of the tree. A path to an entry that does not exist leads
    /// nowhere.
    fn leads_outside(&self, path: &Path) -> bool {
        let mut directories = vec![ROOT];
        let mut rest: VecDeque<Component<'_>> = path.components().collect();
        let mut followed = 0;
        while let Some(component) = rest.pop_front() {
            match component {
                Component::CurDir => {}
                Component::ParentDir if directories.len() > 1 => {
                    directories.pop();
                }
                Component::Normal(name) => {
                    let directory = directories.last().copied().unwrap_or(ROOT);
                    let Some(node) = self.child(directory, name) else {
                        return false;
                    };
                    match &self.nodes[node] {
                        Node::Directory(_) => directories.push(node),
                        Node::Link(target) if followed < MAX_LINKS => {
                            followed += 1;
                            for component in target.components().rev() {
                                rest.push_front(component);
                            }
                        }
                        Node::Link(_) | Node::File => return false,
                    }
                }
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return true,
            }
        }
        false
    }

    fn child(&self, directory: NodeId, name: &OsStr) -> Option<NodeId> {
        match &self.nodes[directory] {
            Node::Directory(children) => children.get(name).copied(),
            Node::File | Node::Link(_) => None,
        }
    }

    /// Adds an entry that must not exist.
    fn add(&mut self, path: &Path, node: Node) -> Result<(), UnpackError> {
        let (parent, name) = self.open_parent(path)?;
        if self.child(parent, name).is_some() {
            return Err(invalid(path, "occurs twice"));
        }
        self.insert(path, parent, name, node).map(drop)
    }

    /// Returns the parent directory of an entry with the entry's name in it. Creates missing ones.
    fn open_parent<'p>(&mut self, path: &'p Path) -> Result<(NodeId, &'p OsStr), UnpackError> {
        let name = path.file_name().unwrap_or_default();
        let parent = self.open_directory(path.parent().unwrap_or(Path::new("")))?;
        Ok((parent, name))
    }

    fn open_directory(&mut self, path: &Path) -> Result<NodeId, UnpackError> {
        let mut directory = ROOT;
        for name in path {
            directory = match self.child(directory, name) {
                Some(child) if matches!(self.nodes[child], Node::Directory(_)) => child,
                Some(_) => return Err(invalid(path, "is below an entry that is not a directory")),
                None => {
                    self.count_entry()?;
                    self.meter.add(DIRECTORY_BYTES)?;
                    self.insert(path, directory, name, Node::Directory(HashMap::new()))?
                }
            };
        }
        Ok(directory)
    }

    fn insert(
        &mut self,
        path: &Path,
        parent: NodeId,
        name: &OsStr,
        node: Node,
    ) -> Result<NodeId, UnpackError> {
        if name.len() > MAX_NAME_BYTES {
            return Err(invalid(path, "has too long a name"));
        }
        let target_bytes = match &node {
            Node::Link(target) => target.as_os_str().len(),
            Node::Directory(_) | Node::File => 0,
        };
        self.name_bytes += name.len() + target_bytes;
        if self.name_bytes > MAX_TOTAL_NAME_BYTES {
            let message = format!("has names of more than {MAX_TOTAL_NAME_BYTES} bytes in total");
            return Err(UnpackError::Invalid(message));
        }
        let id = self.nodes.len();
        self.nodes.push(node);
        if let Node::Directory(children) = &mut self.nodes[parent] {
            children.insert(name.to_owned(), id);
        }
        Ok(id)
    }

    fn count_entry(&mut self) -> Result<(), UnpackError> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(too_many_created());
        }
        Ok(())
    }
}

impl<V: EntryVisitor> TarDestination for EntryTree<'_, V> {
    fn add_directory(&mut self, name: &[u8], _: Attributes) -> Result<(), UnpackError> {
        let Some(path) = entry_or_root_path(name)? else {
            // The root itself, as in an archive of `.`.
            return self.count_entry();
        };
        let before = self.entries;
        self.open_directory(&path)?;
        match self.entries == before {
            true => self.count_entry(),
            false => Ok(()),
        }
    }

    fn add_file(
        &mut self,
        name: &[u8],
        _: Attributes,
        content: &mut impl Read,
        map_error: impl Fn(&io::Error) -> UnpackError,
    ) -> Result<(), UnpackError> {
        self.count_entry()?;
        let path = entry_path(name)?;
        self.add(&path, Node::File)?;
        let mut content = Content {
            input: content,
            bytes: 0,
            failed: false,
        };
        let visited = self.visitor.visit_file(&path, &mut content);
        let drained = visited.and_then(|()| drain(&mut content, &mut self.buffer));
        self.bytes += content.bytes;
        drained.map_err(|error| match content.failed {
            true => map_error(&error),
            false => UnpackError::Io(error),
        })
    }

    fn add_symlink(&mut self, name: &[u8], target: &[u8]) -> Result<(), UnpackError> {
        self.count_entry()?;
        let path = entry_path(name)?;
        if !is_valid_link_target(&path, target) {
            return Err(outside_link(&path));
        }
        self.add(&path, Node::Link(path_of(target).to_owned()))?;
        self.visitor.visit_link(&path);
        self.links.push(path);
        Ok(())
    }

    fn add_hard_link(&mut self, name: &[u8], target: &[u8]) -> Result<(), UnpackError> {
        self.count_entry()?;
        let (path, target) = (entry_path(name)?, entry_path(target)?);
        let (directory, target_name) = self.open_parent(&target)?;
        let precedes = self
            .child(directory, target_name)
            .is_some_and(|node| matches!(self.nodes[node], Node::File));
        if !precedes {
            return Err(invalid(
                &path,
                "is a hard link to a file that does not precede it",
            ));
        }
        self.add(&path, Node::File)?;
        self.visitor.visit_link(&path);
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.entries == 0
    }
}

fn invalid(path: &Path, message: &str) -> UnpackError {
    UnpackError::entry(&path.to_string_lossy(), message)
}

/// The content of a file, which records whether reading it failed: a visitor may fail otherwise.
struct Content<'a, R> {
    input: &'a mut R,
    bytes: u64,
    failed: bool,
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(into);
        match &read {
            Ok(count) => self.bytes += *count as u64,
            Err(error) => self.failed |= error.kind() != io::ErrorKind::Interrupted,
        }
        read
    }
}

fn drain(content: &mut impl Read, buffer: &mut [u8]) -> io::Result<()> {
    loop {
        match content.read(buffer) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
}
