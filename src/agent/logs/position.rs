//! A position in a log, encoded as the number that a client sends back to resume.

use std::{
    fs::Metadata,
    hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState},
    os::unix::fs::MetadataExt,
};

/// The bits of the offset, enough for 16 TiB. The remaining bits hold the source.
const OFFSET_BITS: u32 = 44;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// A short identifier of a file, or of a run of the agent, so that no reader resumes in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceId(u64);

/// An offset in the source with that identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub source: SourceId,
    pub offset: u64,
}

impl SourceId {
    pub fn random() -> Self {
        SourceId::from_hash(RandomState::new().build_hasher().finish())
    }

    /// Returns the identifier of a file. It changes if the path, or even the inode, is reused for
    /// another file.
    pub fn of_file(metadata: &Metadata) -> Self {
        let mut hasher = DefaultHasher::new();
        (metadata.dev(), metadata.ino(), metadata.created().ok()).hash(&mut hasher);
        SourceId::from_hash(hasher.finish())
    }

    fn from_hash(hash: u64) -> Self {
        SourceId(hash >> OFFSET_BITS)
    }
}

impl From<Position> for u64 {
    fn from(position: Position) -> u64 {
        position.source.0 << OFFSET_BITS | position.offset & OFFSET_MASK
    }
}

impl From<u64> for Position {
    fn from(number: u64) -> Self {
        Position {
            source: SourceId(number >> OFFSET_BITS),
            offset: number & OFFSET_MASK,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_survives_conversion_to_number() {
        let position = Position {
            source: SourceId::random(),
            offset: 1 << 40,
        };
        assert_eq!(Position::from(u64::from(position)), position);
    }
}
