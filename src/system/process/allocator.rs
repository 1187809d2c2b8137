//! The C library's allocator (glibc), which all code of this process allocates with.
//!
//! By default it keeps most of what is freed: blocks of up to 32 MiB are taken from its arenas,
//! once one of that size was freed, and an arena returns nothing below its highest used block. Here
//! large blocks are mapped one by one and returned when they are freed, and a thread returns the
//! free pages of the arenas while the process is larger than it was.
#![expect(
    unsafe_code,
    reason = "no crate wraps mallopt, and malloc_trim is a foreign function"
)]

use std::{fs, io, num::NonZero, thread, time::Duration};

use nix::libc::{M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, c_int, malloc_trim, mallopt};

/// The size from which a block is mapped for itself.
const MAPPED_BLOCK_BYTES: c_int = 256 << 10;
/// The free memory at the end of the main arena above which it is returned at once.
const TRIM_BYTES: c_int = 1 << 20;
/// The least number of arenas, which threads share: otherwise there is one per core, like the
/// runtime's threads. By default there are eight per core, each with free memory of its own.
const MIN_ARENAS: usize = 4;
/// The interval at which the process's size is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The growth since the last time from which free pages are looked for again, in pages of 4 KiB.
const MIN_GROWTH_PAGES: u64 = 512;

/// Configures the allocator. Must be called before the process has other threads.
pub fn configure() {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let arenas = c_int::try_from(cores.max(MIN_ARENAS)).unwrap_or(c_int::MAX);
    for (parameter, value) in [
        (M_MMAP_THRESHOLD, MAPPED_BLOCK_BYTES),
        (M_TRIM_THRESHOLD, TRIM_BYTES),
        (M_ARENA_MAX, arenas),
    ] {
        // SAFETY: sets an integer of the allocator.
        if unsafe { mallopt(parameter, value) } == 0 {
            tracing::warn!(parameter, value, "cannot configure the allocator");
        }
    }
}

/// Starts the thread that returns free pages to the system.
pub fn start_trimming() {
    let thread = thread::Builder::new().name("memory".into());
    if let Err(error) = thread.spawn(trim_after_growth) {
        tracing::warn!(%error, "cannot start a thread: free memory is not returned");
    }
}

#[expect(clippy::disallowed_methods, reason = "a thread of its own")]
fn trim_after_growth() {
    let mut least_pages = u64::MAX - MIN_GROWTH_PAGES;
    while let Ok(pages) = resident_pages() {
        least_pages = least_pages.min(pages);
        if pages >= least_pages + MIN_GROWTH_PAGES {
            // SAFETY: may be called at any time from any thread.
            unsafe { malloc_trim(0) };
            least_pages = resident_pages().unwrap_or(pages);
        }
        thread::sleep(CHECK_INTERVAL);
    }
}

/// Returns the size of the process's resident memory in pages.
fn resident_pages() -> io::Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let resident = statm.split(' ').nth(1);
    resident
        .and_then(|pages| pages.parse().ok())
        .ok_or_else(|| io::Error::other("unexpected format of /proc/self/statm"))
}
