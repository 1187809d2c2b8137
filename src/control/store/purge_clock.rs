//! The purge clock: the time of the last purge.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sea_orm::{ActiveModelTrait, EntityTrait, IntoActiveModel, sea_query::OnConflict};

use super::{Store, StoreError, corrupt, entity::purge_clock, from_millis, to_millis};
use crate::system::process::boot::BootTime;

/// The id of the only row.
const ID: i32 = 1;

/// The times of the last purge, and how long purges remain suspended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeClock {
    pub wall: DateTime<Utc>,
    pub boot: BootTime,
    pub suspended: Duration,
}

fn to_column(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn from_column(millis: i64) -> Result<Duration, StoreError> {
    let millis = u64::try_from(millis).map_err(|_| corrupt("purge clock", millis))?;
    Ok(Duration::from_millis(millis))
}

impl Store {
    /// Returns the purge clock, or `None` before the first purge.
    pub async fn purge_clock(&self) -> Result<Option<PurgeClock>, StoreError> {
        let row = purge_clock::Entity::find_by_id(ID).one(&self.db).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(PurgeClock {
            wall: from_millis(row.wall)?,
            boot: BootTime {
                boot_id: row.boot_id,
                uptime: from_column(row.uptime_millis)?,
            },
            suspended: from_column(row.suspended_millis)?,
        }))
    }

    pub async fn set_purge_clock(&self, clock: &PurgeClock) -> Result<(), StoreError> {
        use purge_clock::Column;
        let row = purge_clock::Model {
            id: ID,
            wall: to_millis(clock.wall),
            boot_id: clock.boot.boot_id.clone(),
            uptime_millis: to_column(clock.boot.uptime),
            suspended_millis: to_column(clock.suspended),
        };
        let changed = [
            Column::Wall,
            Column::BootId,
            Column::UptimeMillis,
            Column::SuspendedMillis,
        ];
        let replace = OnConflict::column(Column::Id)
            .update_columns(changed)
            .to_owned();
        purge_clock::Entity::insert(row.into_active_model().reset_all())
            .on_conflict(replace)
            .exec_without_returning(&self.writer)
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::store::test_database::TestDatabase;

    #[tokio::test]
    async fn stored_clock_is_replaced() {
        let database = TestDatabase::create();
        let store = database.open().await;
        assert_eq!(store.purge_clock().await.unwrap(), None);
        for seconds in [1, 2] {
            let clock = PurgeClock {
                wall: DateTime::from_timestamp(seconds, 0).unwrap(),
                boot: BootTime {
                    boot_id: "b".to_owned(),
                    uptime: Duration::from_millis(1500),
                },
                suspended: Duration::from_secs(3600),
            };
            store.set_purge_clock(&clock).await.unwrap();
            assert_eq!(store.purge_clock().await.unwrap(), Some(clock));
        }
    }
}
