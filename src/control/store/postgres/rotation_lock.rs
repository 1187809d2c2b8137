//! Excludes other rotations of the keys of stored secrets.

use sqlx::postgres::PgConnection;

use super::{LOCK_CLASS, PostgresConfig, connect_once, process_lock::try_lock};
use crate::control::store::{OpenError, open_error::OpenFailure};

/// The second key of the lock.
const ROTATION_LOCK: i32 = 5;

/// The exclusive right to rotate keys. The server releases it when the connection is closed, also
/// by the death of the process.
pub struct RotationLock {
    _connection: PgConnection,
}

impl RotationLock {
    /// Acquires the lock, or returns `None` if another process has it.
    ///
    /// # Errors
    /// If the database cannot be reached.
    pub async fn try_acquire(config: &PostgresConfig) -> Result<Option<RotationLock>, OpenError> {
        let acquire = async {
            let mut connection = connect_once(config).await?;
            let is_locked = try_lock(&mut connection, LOCK_CLASS, ROTATION_LOCK).await?;
            Ok(is_locked.then_some(RotationLock {
                _connection: connection,
            }))
        };
        let acquired = acquire.await;
        acquired.map_err(|failure: OpenFailure| failure.of(config))
    }
}
