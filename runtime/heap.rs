//! Arranges the C library's heap of the template, so that its forks cost little: they copy the page
//! tables of all memory in use, and every page that they write to.

#![allow(unsafe_code, reason = "asks the allocator where it takes memory from")]

use std::ops::Range;

use nix::libc;

/// The address space for the heap, of which a started engine needs a half.
const RESERVED: usize = 32 << 20;
/// The C library's own value of `M_TOP_PAD`.
const DEFAULT_TOP_PAD: usize = 128 << 10;
/// The value of `M_MMAP_THRESHOLD` in forks. By itself, the C library adapts this and the next one,
/// but not once a parameter of it was set.
const MMAP_THRESHOLD: usize = 4 << 20;
/// The value of `M_TRIM_THRESHOLD` in forks.
const TRIM_THRESHOLD: usize = 8 << 20;
/// Less than the first value of `M_MMAP_THRESHOLD`.
const PIECE: usize = 64 << 10;
const PAGE: usize = 4096;

/// The part of the heap in huge pages.
pub(crate) struct HugeHeap(Range<usize>);

impl HugeHeap {
    /// Lets the heap grow in huge pages, of which a fork copies one entry each, not 512. Without
    /// effect on systems that have none.
    pub(crate) fn reserve() -> HugeHeap {
        set(libc::M_TOP_PAD, RESERVED);
        let start = heap_end();
        let mut pieces = Vec::new();
        while heap_end() == start && pieces.len() * PIECE < RESERVED {
            // SAFETY: it is freed once, below.
            pieces.push(unsafe { libc::malloc(PIECE) });
        }
        let heap = HugeHeap(start.next_multiple_of(PAGE)..heap_end());
        heap.advise(libc::MADV_HUGEPAGE);
        for piece in pieces {
            // SAFETY: allocated above.
            unsafe { libc::free(piece) };
        }
        heap
    }

    /// Ends the growth in huge pages. Those that there are remain, and forks do not share what they
    /// allocate from now on.
    pub(crate) fn complete(self) {
        self.advise(libc::MADV_NOHUGEPAGE);
        set(libc::M_TOP_PAD, DEFAULT_TOP_PAD);
        set(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD);
        set(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD);
        // First, since trimming would also take the free pages between the others out of huge ones.
        fill_gaps();
        // SAFETY: it has no preconditions.
        unsafe { libc::malloc_trim(DEFAULT_TOP_PAD) };
    }

    fn advise(&self, advice: libc::c_int) {
        let start = self.0.start as *mut libc::c_void;
        // SAFETY: the range is part of the heap, and its content and access remain as they are.
        // Fails if the kernel has no huge pages.
        let _ = unsafe { libc::madvise(start, self.0.len(), advice) };
    }
}

/// Allocates all free memory between the pieces in use, and keeps it. Forks then allocate side by
/// side at the end of the heap: each gap is on a page that a fork would have to copy.
fn fill_gaps() {
    // The smallest size that the C library allocates, the steps between its sizes, and the largest
    // size that it also keeps apart from the others.
    const SMALLEST: usize = 24;
    const STEP: usize = 16;
    const LARGEST_CACHED: usize = 1032;
    let halved = std::iter::successors(Some(PIECE), |size| Some(size / 2));
    let halved = halved.take_while(|size| *size > LARGEST_CACHED);
    let cached = (SMALLEST..=LARGEST_CACHED).rev().step_by(STEP);
    for size in halved.chain(cached) {
        // SAFETY: it has no preconditions.
        let end = heap_end() - unsafe { libc::mallinfo2().keepcost };
        loop {
            // SAFETY: it is freed once at most.
            let piece = unsafe { libc::malloc(size) };
            if piece.is_null() || piece as usize >= end {
                // SAFETY: allocated above.
                unsafe { libc::free(piece) };
                break;
            }
        }
    }
}

/// Sets a parameter of the C library's allocator.
fn set(parameter: libc::c_int, bytes: usize) {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: no other thread allocates.
    unsafe { libc::mallopt(parameter, bytes) };
}

fn heap_end() -> usize {
    // SAFETY: it only returns the address.
    unsafe { libc::sbrk(0) as usize }
}
