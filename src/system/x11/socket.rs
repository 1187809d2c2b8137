//! The sockets of an X server: the number of a display, and the users who may connect.
//!
//! A server has two sockets, a file and an abstract name, and client libraries try the name first.
//! Everyone on the machine can connect to an abstract name, so that idle connections could use up
//! the server's clients. Our servers listen on the file only, whose permissions name the users. The
//! agent reserves the abstract name without listening on it: another user who bound it would
//! receive the clients and their cookie.

#![allow(
    unsafe_code,
    reason = "neither std nor nix can read or write an access control list"
)]

use std::{
    ffi::CString,
    fs::{self, DirBuilder, Permissions},
    io,
    ops::Range,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown},
    },
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open},
    libc,
    sys::stat::{Mode, SFlag, fchmod, fstat},
    unistd::{Gid, Uid, fchown},
};
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::system::process::handover::PassedDescriptor;

/// The directory of the sockets of all X servers.
pub const SOCKET_DIR: &str = "/tmp/.X11-unix";
const SOCKET_DIR_MODE: u32 = 0o1777;
/// The number of displays: the TCP port of a higher one would not exist.
const MAX_DISPLAYS: u32 = 65_536 - 6_000;
/// The mode that lets every user connect, where access control lists are not supported.
const OPEN_MODE: u32 = 0o666;

/// The number of a display, reserved for a server of this process until it is dropped.
#[derive(Debug)]
pub struct DisplayNumber {
    number: u32,
    /// The abstract socket, bound and not listening: clients are refused, and use the file.
    reserved: Socket,
}

/// A reserved number for the next program.
#[derive(Debug, Serialize, Deserialize)]
pub struct PassedDisplayNumber {
    number: u32,
    reserved: PassedDescriptor,
}

impl DisplayNumber {
    /// Reserves the lowest number that no X server uses, and that no other process has reserved.
    ///
    /// # Errors
    /// If all numbers are in use, or the directory of the sockets cannot be created.
    pub fn reserve() -> io::Result<Self> {
        claim_directory()?;
        Self::reserve_one_of(0..MAX_DISPLAYS)
    }

    fn reserve_one_of(mut numbers: Range<u32>) -> io::Result<Self> {
        let count = numbers.len();
        numbers
            .find_map(|number| Self::try_reserve(number).transpose())
            .unwrap_or_else(|| {
                let message = format!("all {count} display numbers are in use");
                Err(io::Error::new(io::ErrorKind::AddrInUse, message))
            })
    }

    fn try_reserve(number: u32) -> io::Result<Option<Self>> {
        let reserved = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        let name = format!("\0{}", socket_path(number));
        match reserved.bind(&SockAddr::unix(name)?) {
            Ok(()) if is_replaceable(number)? => Ok(Some(DisplayNumber { number, reserved })),
            Ok(()) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the number that the program before has reserved.
    #[must_use]
    pub fn adopt(passed: PassedDisplayNumber) -> Self {
        DisplayNumber {
            number: passed.number,
            reserved: passed.reserved.into_inner().into(),
        }
    }

    /// Releases the number to the next program of this process.
    ///
    /// # Errors
    /// Fails if the descriptor cannot be passed on.
    pub fn pass(self) -> io::Result<PassedDisplayNumber> {
        Ok(PassedDisplayNumber {
            number: self.number,
            reserved: PassedDescriptor::new(self.reserved.into())?,
        })
    }

    #[must_use]
    pub fn get(&self) -> u32 {
        self.number
    }
}

/// Returns the path of a display's socket.
#[must_use]
pub fn socket_path(number: u32) -> String {
    format!("{SOCKET_DIR}/X{number}")
}

/// Creates the directory of the sockets. If another user has created it, root takes it over: its
/// owner could replace the sockets in it.
///
/// # Errors
/// If it cannot be created, or taken over.
pub fn claim_directory() -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(SOCKET_DIR) {
        Ok(()) => return fs::set_permissions(SOCKET_DIR, Permissions::from_mode(SOCKET_DIR_MODE)),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) => {}
    }
    let own = Uid::effective();
    if !own.is_root() || fs::symlink_metadata(SOCKET_DIR)?.uid() == own.as_raw() {
        return Ok(());
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = open(SOCKET_DIR, flags, Mode::empty())?;
    match fchown(&directory, Some(own), None) {
        // It belongs to a user outside of this user namespace.
        Err(Errno::EPERM | Errno::EINVAL) => {
            tracing::warn!("{SOCKET_DIR} belongs to another user, who can replace the displays");
            Ok(())
        }
        taken => {
            taken?;
            Ok(fchmod(
                &directory,
                Mode::from_bits_truncate(SOCKET_DIR_MODE),
            )?)
        }
    }
}

/// Whether a server may create its socket there: it removes the socket of a server that has ended.
fn is_replaceable(number: u32) -> io::Result<bool> {
    let path = socket_path(number);
    let found = match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        found => found?,
    };
    let own = Uid::effective();
    if found.is_dir() || (found.uid() != own.as_raw() && !own.is_root()) {
        return Ok(false);
    }
    if !found.file_type().is_socket() {
        return Ok(true);
    }
    let client = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The queue of a server that does not accept may be full.
    client.set_nonblocking(true)?;
    let connected = client.connect(&SockAddr::unix(path)?);
    Ok(connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

/// Permits connections to this process's user and, if there is one, to a group. To be called when
/// the server has created its socket, which all users can connect to until then.
///
/// # Errors
/// If there is no socket that belongs to this process's user.
pub fn protect(number: u32, group: Option<Gid>) -> io::Result<()> {
    let socket = SocketFile::open(number)?;
    let path = socket.path();
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    if let Some(group) = group {
        chown(&path, None, Some(group.as_raw()))?;
        fs::set_permissions(&path, Permissions::from_mode(0o660))?;
    }
    Ok(())
}

/// Permits connections to a further user. Where the file system has no access control lists, it
/// permits them to all users.
///
/// # Errors
/// If there is no socket that belongs to this process's user.
pub fn permit(number: u32, user: Uid) -> io::Result<()> {
    let socket = SocketFile::open(number)?;
    let mut list = match socket.access_list() {
        Err(Errno::EOPNOTSUPP) => return socket.permit_all(),
        list => list?,
    };
    list.add_user(user);
    match socket.set_access_list(&list) {
        Err(Errno::EOPNOTSUPP) => socket.permit_all(),
        set => Ok(set?),
    }
}

/// A socket file of this process's user, open without following links.
struct SocketFile {
    descriptor: OwnedFd,
    mode: u32,
}

impl SocketFile {
    fn open(number: u32) -> io::Result<Self> {
        let path = socket_path(number);
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let descriptor = open(path.as_str(), flags, Mode::empty())?;
        let found = fstat(&descriptor)?;
        let kind = SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits());
        if kind != SFlag::S_IFSOCK || found.st_uid != Uid::effective().as_raw() {
            let message = format!("{path} is no socket of the agent's user");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        Ok(SocketFile {
            descriptor,
            mode: found.st_mode,
        })
    }

    /// Returns a path of the open file, which works for calls that need one.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.descriptor.as_raw_fd())
    }

    fn permit_all(&self) -> io::Result<()> {
        fs::set_permissions(self.path(), Permissions::from_mode(OPEN_MODE))
    }

    /// Reads the list, or makes one of the mode.
    fn access_list(&self) -> nix::Result<AccessList> {
        let (path, mut buffer) = (self.c_path(), [0_u8; AccessList::MAX_BYTES]);
        // SAFETY: the strings end with NUL, and the call writes at most the length of the buffer.
        let read = unsafe {
            let value = buffer.as_mut_ptr().cast();
            libc::getxattr(
                path.as_ptr(),
                AccessList::ATTRIBUTE.as_ptr(),
                value,
                buffer.len(),
            )
        };
        match Errno::result(read) {
            Ok(read) => Ok(AccessList(buffer[..read.unsigned_abs()].to_vec())),
            Err(Errno::ENODATA) => Ok(AccessList::from_mode(self.mode)),
            Err(errno) => Err(errno),
        }
    }

    fn set_access_list(&self, list: &AccessList) -> nix::Result<()> {
        let path = self.c_path();
        // SAFETY: the strings end with NUL, and the call reads the length of the list.
        let set = unsafe {
            let value = list.0.as_ptr().cast();
            libc::setxattr(
                path.as_ptr(),
                AccessList::ATTRIBUTE.as_ptr(),
                value,
                list.0.len(),
                0,
            )
        };
        Errno::result(set).map(drop)
    }

    fn c_path(&self) -> CString {
        CString::new(self.path()).unwrap_or_default()
    }
}

/// An access control list in the form of `linux/posix_acl_xattr.h`.
#[derive(Debug, PartialEq)]
struct AccessList(Vec<u8>);

impl AccessList {
    const ATTRIBUTE: &std::ffi::CStr = c"system.posix_acl_access";
    /// The bound of a list. No file system stores a longer attribute.
    const MAX_BYTES: usize = 64 << 10;
    const VERSION: u32 = 2;
    const HEADER_BYTES: usize = 4;
    const ENTRY_BYTES: usize = 8;
    const OWNER: u16 = 0x01;
    const USER: u16 = 0x02;
    const GROUP: u16 = 0x04;
    const MASK: u16 = 0x10;
    const OTHERS: u16 = 0x20;
    /// The id of entries that name none.
    const NO_ID: u32 = u32::MAX;
    /// The right to read and write, which a connection needs.
    const CONNECT: u16 = 0o6;

    fn from_mode(mode: u32) -> Self {
        let rights = |shift: u32| (mode >> shift & 0o7) as u16;
        let entries = [
            (Self::OWNER, rights(6)),
            (Self::GROUP, rights(3)),
            // Limits the rights of the group and of the users that are added.
            (Self::MASK, Self::CONNECT),
            (Self::OTHERS, rights(0)),
        ];
        let mut list = Self::VERSION.to_le_bytes().to_vec();
        list.extend(
            entries
                .map(|(tag, rights)| Self::entry(tag, rights, Self::NO_ID))
                .concat(),
        );
        AccessList(list)
    }

    /// Adds an entry behind the owner's, which is the first one, unless there is one.
    fn add_user(&mut self, user: Uid) {
        let entry = Self::entry(Self::USER, Self::CONNECT, user.as_raw());
        let mut entries = self.0[Self::HEADER_BYTES..].chunks(Self::ENTRY_BYTES);
        if !entries.any(|found| found == entry) {
            let at = Self::HEADER_BYTES + Self::ENTRY_BYTES;
            self.0.splice(at..at, entry);
        }
    }

    fn entry(tag: u16, rights: u16, id: u32) -> [u8; Self::ENTRY_BYTES] {
        let mut entry = [0; Self::ENTRY_BYTES];
        entry[..2].copy_from_slice(&tag.to_le_bytes());
        entry[2..4].copy_from_slice(&rights.to_le_bytes());
        entry[4..].copy_from_slice(&id.to_le_bytes());
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_list_grants_each_added_user_once_and_keeps_the_mode() {
        let mut list = AccessList::from_mode(0o100_660);
        for user in [7, 8, 7] {
            list.add_user(Uid::from_raw(user));
        }
        let entry = AccessList::entry;
        let entries = [
            entry(AccessList::OWNER, 6, AccessList::NO_ID),
            entry(AccessList::USER, 6, 8),
            entry(AccessList::USER, 6, 7),
            entry(AccessList::GROUP, 6, AccessList::NO_ID),
            entry(AccessList::MASK, 6, AccessList::NO_ID),
            entry(AccessList::OTHERS, 0, AccessList::NO_ID),
        ];
        assert_eq!(list.0[AccessList::HEADER_BYTES..], entries.concat());
    }

    #[test]
    fn reserved_number_is_refused_to_clients_and_to_other_servers() {
        let (first, second) = (DisplayNumber::reserve(), DisplayNumber::reserve());
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_ne!(first.get(), second.get());
        let address = SockAddr::unix(format!("\0{}", socket_path(first.get()))).unwrap();
        let socket = || Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        let bound = socket().bind(&address).unwrap_err();
        assert_eq!(bound.kind(), io::ErrorKind::AddrInUse);
        let connected = socket().connect(&address).unwrap_err();
        assert_eq!(connected.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn numbers_in_use_are_a_clear_error_and_free_again_when_their_displays_end() {
        let first = DisplayNumber::reserve().unwrap();
        let number = first.get();
        let only = number..number + 1;
        let error = DisplayNumber::reserve_one_of(only.clone()).unwrap_err();
        assert_eq!(error.to_string(), "all 1 display numbers are in use");
        let listener = std::os::unix::net::UnixListener::bind(socket_path(number)).unwrap();
        assert!(!is_replaceable(number).unwrap());
        // The file of a server that was killed stays.
        drop(listener);
        drop(first);
        assert!(fs::exists(socket_path(number)).unwrap());
        match DisplayNumber::reserve_one_of(only) {
            Ok(again) => {
                assert_eq!(again.get(), number);
                fs::remove_file(socket_path(number)).unwrap();
            }
            // Another process was faster.
            Err(_) => assert!(DisplayNumber::try_reserve(number).unwrap().is_none()),
        }
    }
}
