//! Memory for keys: locked where the system allows it, not part of core files, and zeroed when it
//! is dropped.

use std::io;

use memmap2::{Advice, MmapMut};
use secrecy::zeroize::Zeroize;

/// Bytes in pages of their own.
pub struct LockedBytes {
    pages: MmapMut,
    length: usize,
}

impl LockedBytes {
    /// Copies the bytes. Pages that cannot be locked, because the process may lock no more, are
    /// used as they are.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn copy_of(bytes: &[u8]) -> io::Result<LockedBytes> {
        let mut pages = MmapMut::map_anon(bytes.len().max(1))?;
        if let Err(error) = pages.lock() {
            tracing::debug!(%error, "cannot lock memory for a key");
        }
        pages.advise(Advice::DontDump)?;
        pages[..bytes.len()].copy_from_slice(bytes);
        Ok(LockedBytes {
            pages,
            length: bytes.len(),
        })
    }

    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.pages[..self.length]
    }
}

impl Drop for LockedBytes {
    fn drop(&mut self) {
        self.pages.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns the line of the kernel's description of the mapping at `address`.
    fn mapping_line(address: usize, name: &str) -> String {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let is_start = |line: &&str| {
            let range = line
                .split(' ')
                .next()
                .and_then(|range| range.split_once('-'));
            let parse = |text| usize::from_str_radix(text, 16);
            range.is_some_and(|(from, to)| {
                matches!((parse(from), parse(to)), (Ok(from), Ok(to)) if (from..to).contains(&address))
            })
        };
        let lines = maps.lines().skip_while(|line| !is_start(line));
        let mut found = lines.filter(|line| line.starts_with(name));
        found.next().unwrap().to_owned()
    }

    #[test]
    fn pages_are_not_dumped() {
        let bytes = LockedBytes::copy_of(b"a key").unwrap();
        assert_eq!(bytes.expose(), b"a key");
        let flags = mapping_line(bytes.expose().as_ptr() as usize, "VmFlags:");
        assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
    }

    #[test]
    fn no_bytes_are_allowed() {
        assert_eq!(LockedBytes::copy_of(b"").unwrap().expose(), b"");
    }
}
