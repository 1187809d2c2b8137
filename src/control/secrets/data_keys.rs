//! The keys that seal fields. Each project has its own, and so has the organization.

use secrecy::{ExposeSecret, SecretSlice, zeroize::Zeroizing};

use super::{
    SecretError,
    cipher::{self, CipherKey, Sealed, SealedPlace},
    key::KEY_BYTES,
    key_ring::KeyRing,
};
use crate::{api::ids::ProjectId, control::store::DataKeyRow};

const FIRST_VERSION: u32 = 1;
/// The name of the organization among the scopes. No project has it.
const ORGANIZATION: &str = "organization";

/// The part of the installation that a data key is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretScope {
    Organization,
    Project(ProjectId),
}

impl SecretScope {
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            SecretScope::Organization => ORGANIZATION,
            SecretScope::Project(id) => id.as_str(),
        }
    }
}

/// The unwrapped keys of a scope.
pub struct DataKeys {
    scope: SecretScope,
    /// In the order of their versions. The last one seals.
    keys: Vec<(u32, CipherKey)>,
}

impl DataKeys {
    pub(super) fn unwrap_all(
        ring: &KeyRing,
        scope: SecretScope,
        rows: &[DataKeyRow],
    ) -> Result<DataKeys, SecretError> {
        let mut keys = Vec::with_capacity(rows.len());
        for row in rows {
            keys.push((row.version, unwrap(ring, row)?));
        }
        keys.sort_by_key(|(version, _)| *version);
        Ok(DataKeys { scope, keys })
    }

    /// Seals a value for a place.
    ///
    /// # Errors
    /// If the kernel has no random numbers.
    pub fn seal(&self, place: &SealedPlace<'_>, secret: &[u8]) -> Result<Sealed, SecretError> {
        let (version, key) = self.keys.last().ok_or(SecretError::Damaged)?;
        let place = cipher::field_place(self.scope.as_str(), *version, place);
        Ok(Sealed {
            key_version: *version,
            bytes: cipher::seal(&key[..], &place, secret)?,
        })
    }

    /// Opens the value at a place.
    ///
    /// # Errors
    /// If it was changed, or sealed for another place.
    pub fn open(
        &self,
        place: &SealedPlace<'_>,
        sealed: &Sealed,
    ) -> Result<SecretSlice<u8>, SecretError> {
        let version = sealed.key_version;
        let found = self.keys.iter().find(|(known, _)| *known == version);
        let (_, key) = found.ok_or(SecretError::Damaged)?;
        let place = cipher::field_place(self.scope.as_str(), version, place);
        cipher::open(&key[..], &place, &sealed.bytes)
    }
}

/// Returns a new key of a scope, wrapped.
pub(super) fn generate(ring: &KeyRing, scope: &SecretScope) -> Result<DataKeyRow, SecretError> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    getrandom::fill(&mut key[..]).map_err(|error| SecretError::Memory(error.into()))?;
    wrap(ring, scope.as_str(), FIRST_VERSION, &key)
}

/// Returns a wrapped key, wrapped with the primary key of the ring instead.
pub(super) fn rewrap(ring: &KeyRing, row: &DataKeyRow) -> Result<DataKeyRow, SecretError> {
    wrap(ring, &row.scope, row.version, &unwrap(ring, row)?)
}

fn wrap(
    ring: &KeyRing,
    scope: &str,
    version: u32,
    key: &CipherKey,
) -> Result<DataKeyRow, SecretError> {
    let primary = ring.primary()?;
    let place = cipher::key_place(scope, version, primary.id());
    Ok(DataKeyRow {
        scope: scope.to_owned(),
        version,
        key_id: primary.id().to_owned(),
        wrapped: cipher::seal(primary.expose(), &place, &key[..])?,
    })
}

pub(super) fn unwrap(ring: &KeyRing, row: &DataKeyRow) -> Result<CipherKey, SecretError> {
    let key = ring.find(&row.key_id)?;
    let place = cipher::key_place(&row.scope, row.version, &row.key_id);
    let opened = cipher::open(key.expose(), &place, &row.wrapped)?;
    let mut unwrapped = Zeroizing::new([0; KEY_BYTES]);
    if opened.expose_secret().len() != KEY_BYTES {
        return Err(SecretError::Damaged);
    }
    unwrapped.copy_from_slice(opened.expose_secret());
    Ok(unwrapped)
}
