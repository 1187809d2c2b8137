//! Integers and strings as LevelDB and protocol buffers encode them.

/// Why a file could not be read.
pub(super) type Damage = &'static str;

const TRUNCATED: Damage = "is truncated";

/// The rest of a part of a file that is being parsed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice<'a>(pub(super) &'a [u8]);

impl<'a> Slice<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> Result<u8, Damage> {
        Ok(self.bytes(1)?[0])
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Damage> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(super) fn varint(&mut self) -> Result<u64, Damage> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("has an invalid number")
    }

    pub(super) fn length(&mut self) -> Result<usize, Damage> {
        usize::try_from(self.varint()?).map_err(|_| TRUNCATED)
    }

    /// Returns a string that its length precedes.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Damage> {
        let length = self.length()?;
        self.bytes(length)
    }
}
