//! The keys of the operator.

use std::{fmt, io, sync::Arc};

use secrecy::{ExposeSecret, SecretString};

use super::key::OperatorKey;

/// The most keys of a ring.
pub const MAX_KEYS: usize = 16;

/// A key that something is wrapped with, but that is not in the ring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stored secrets need the key {0}, which is not among those of --secrets-key-file")]
pub struct UnknownKey(pub String);

/// Why a text is no list of keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyRingError {
    #[error("line {0} is not a key of 64 hexadecimal digits")]
    Line(usize),
    #[error("line {0} repeats a key")]
    Repeated(usize),
    #[error("there is no key")]
    Empty,
    #[error("there are more than {MAX_KEYS} keys")]
    TooMany,
    #[error("cannot hold a key in memory: {0}")]
    Memory(#[from] io::Error),
}

/// The keys of the operator. The first wraps new data keys. Clones share them. Only their ids can
/// be printed.
#[derive(Clone)]
pub struct KeyRing {
    keys: Arc<[OperatorKey]>,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

impl KeyRing {
    /// Parses a list of keys: one in each line. Empty lines, and those that begin with `#`, are
    /// ignored. In a variable, commas separate the keys.
    ///
    /// # Errors
    /// Names the line that is wrong, without its text.
    pub fn parse(text: &SecretString) -> Result<KeyRing, KeyRingError> {
        let mut keys: Vec<OperatorKey> = Vec::new();
        for (index, line) in text.expose_secret().lines().enumerate() {
            if line.trim_start().starts_with('#') {
                continue;
            }
            let texts = line.split(',').map(str::trim);
            for text in texts.filter(|text| !text.is_empty()) {
                let key = OperatorKey::parse(text)?.ok_or(KeyRingError::Line(index + 1))?;
                if keys.iter().any(|known| known.id() == key.id()) {
                    return Err(KeyRingError::Repeated(index + 1));
                }
                if keys.len() == MAX_KEYS {
                    return Err(KeyRingError::TooMany);
                }
                keys.push(key);
            }
        }
        match keys.is_empty() {
            true => Err(KeyRingError::Empty),
            false => Ok(KeyRing { keys: keys.into() }),
        }
    }

    /// Returns the key that wraps new data keys.
    pub(super) fn primary(&self) -> Result<&OperatorKey, UnknownKey> {
        let missing = || UnknownKey("(none)".to_owned());
        self.keys.first().ok_or_else(missing)
    }

    /// Returns the id of the key that wraps new data keys.
    #[must_use]
    pub fn primary_id(&self) -> Option<&str> {
        self.keys.first().map(OperatorKey::id)
    }

    /// Returns the key with an id.
    pub(super) fn find(&self, id: &str) -> Result<&OperatorKey, UnknownKey> {
        let found = self.keys.iter().find(|key| key.id() == id);
        found.ok_or_else(|| UnknownKey(id.to_owned()))
    }

    /// Returns the ids of all keys, the primary one first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(OperatorKey::id)
    }
}
