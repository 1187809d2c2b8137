//! Where a reader is, as the number its client sends back to go on.

use std::{
    fs::Metadata,
    hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState},
    os::unix::fs::MetadataExt,
};

/// Room for offsets up to 16 TiB.
const OFFSET_BITS: u32 = 44;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// Tells one file, or one run of the agent, from another, so that no reader goes on in the wrong one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

/// A place in what has that mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub mark: Mark,
    pub offset: u64,
}

impl Mark {
    pub fn random() -> Self {
        Mark::of(RandomState::new().build_hasher().finish())
    }

    /// A file that takes the name of another, or even its inode, has another mark.
    pub fn of_file(metadata: &Metadata) -> Self {
        let mut hasher = DefaultHasher::new();
        (metadata.dev(), metadata.ino(), metadata.created().ok()).hash(&mut hasher);
        Mark::of(hasher.finish())
    }

    fn of(hash: u64) -> Self {
        Mark(hash >> OFFSET_BITS)
    }
}

impl From<Position> for u64 {
    fn from(position: Position) -> u64 {
        position.mark.0 << OFFSET_BITS | position.offset & OFFSET_MASK
    }
}

impl From<u64> for Position {
    fn from(number: u64) -> Self {
        Position {
            mark: Mark(number >> OFFSET_BITS),
            offset: number & OFFSET_MASK,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_found_again_by_its_number() {
        let position = Position {
            mark: Mark::random(),
            offset: 1 << 40,
        };
        assert_eq!(Position::from(u64::from(position)), position);
    }
}
