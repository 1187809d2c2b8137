//! The table of used one-time codes. Of each secret it has the last time step whose code was used.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter,
    sea_query::{Expr, ExprTrait, OnConflict},
};

use super::{Store, StoreError, entity::totp_step, to_millis};

impl Store {
    /// Marks a time step of a secret as used, by the time when it ends. Returns false if it, or a
    /// later one, is used already.
    pub async fn use_totp_step(
        &self,
        holder: &str,
        end: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let row = totp_step::Model {
            holder: holder.to_owned(),
            ends_at: to_millis(end),
        };
        let ends_at = Expr::col((totp_step::Entity, totp_step::Column::EndsAt));
        let conflict = OnConflict::column(totp_step::Column::Holder)
            .update_column(totp_step::Column::EndsAt)
            .action_and_where(ends_at.lt(to_millis(end)))
            .to_owned();
        let used = totp_step::Entity::insert(totp_step::ActiveModel::from(row).reset_all())
            .on_conflict(conflict)
            .exec_without_returning(&self.writer)
            .await?;
        Ok(used > 0)
    }

    /// Makes a time step usable again whose code was not written, unless a later one was used.
    pub async fn release_totp_step(
        &self,
        holder: &str,
        end: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        // The steps before it stay used.
        let before = to_millis(end) - 1;
        totp_step::Entity::update_many()
            .col_expr(totp_step::Column::EndsAt, Expr::value(before))
            .filter(totp_step::Column::Holder.eq(holder))
            .filter(totp_step::Column::EndsAt.eq(to_millis(end)))
            .exec(&self.writer)
            .await?;
        Ok(())
    }

    /// Deletes the rows of steps that ended before `before`, whose codes no site accepts. Returns
    /// how many.
    pub async fn purge_totp_steps(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let purged = totp_step::Entity::delete_many()
            .filter(totp_step::Column::EndsAt.lt(to_millis(before)))
            .exec(&self.writer)
            .await?;
        Ok(purged.rows_affected)
    }
}

/// Deletes the row of a secret that is deleted or replaced.
pub(super) async fn delete_totp_step(
    db: &impl ConnectionTrait,
    holder: &str,
) -> Result<(), StoreError> {
    totp_step::Entity::delete_many()
        .filter(totp_step::Column::Holder.eq(holder))
        .exec(db)
        .await?;
    Ok(())
}
