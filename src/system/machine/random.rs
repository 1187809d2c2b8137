//! The kernel's random numbers.

#![expect(
    unsafe_code,
    reason = "the kernel has no other interface for a reseed than ioctl"
)]

use std::{
    fs::File,
    io::{self, Read},
    os::fd::AsRawFd,
};

use nix::libc::{c_int, c_uchar};

const DEVICE: &str = "/dev/urandom";
/// The source of random numbers that the engine gives the machine.
const ENGINE_SOURCE: &str = "/dev/hwrng";
/// The bytes that are read from the source of the engine. The kernel and its driver keep up to 128
/// of them in memory, which a snapshot has: only later ones differ between machines.
const SOURCE_BYTES: usize = 256;
/// The most bytes that are added at once: those of a request, and of the source.
const MAX_BYTES: usize = 256 + SOURCE_BYTES;

/// `struct rand_pool_info` of the kernel, with room for the bytes.
#[repr(C)]
struct PoolInfo {
    entropy_bits: c_int,
    size: c_int,
    bytes: [c_uchar; MAX_BYTES],
}

mod commands {
    use nix::libc::c_int;

    // The kernel declares the size of the two numbers before the bytes.
    nix::ioctl_write_ptr!(add_entropy, b'R', 0x03, [c_int; 2]);
    nix::ioctl_none!(reseed, b'R', 0x07);
}

/// Returns random bytes of the engine, if the machine has such a source.
///
/// # Errors
/// Fails if the source cannot be read.
pub fn of_engine() -> io::Result<Option<Vec<u8>>> {
    let mut source = match File::open(ENGINE_SOURCE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = vec![0; SOURCE_BYTES];
    match source.read_exact(&mut bytes) {
        // The device is there without a source.
        Err(error) if error.raw_os_error() == Some(nix::libc::ENODEV) => Ok(None),
        read => read.map(|()| Some(bytes)),
    }
}

/// Adds random bytes, from which all later random numbers follow. Uses the first 512 of them.
///
/// # Errors
/// Fails without `CAP_SYS_ADMIN`.
pub fn reseed(bytes: &[u8]) -> io::Result<()> {
    let device = File::open(DEVICE)?;
    let bytes = &bytes[..bytes.len().min(MAX_BYTES)];
    let mut info = PoolInfo {
        entropy_bits: bytes.len() as c_int * 8,
        size: bytes.len() as c_int,
        bytes: [0; MAX_BYTES],
    };
    info.bytes[..bytes.len()].copy_from_slice(bytes);
    let descriptor = device.as_raw_fd();
    // SAFETY: the kernel reads `size` bytes after the two numbers, which are in `info`.
    unsafe { commands::add_entropy(descriptor, (&raw const info).cast()) }?;
    // SAFETY: the command has no argument, and the descriptor is open.
    unsafe { commands::reseed(descriptor) }?;
    Ok(())
}
