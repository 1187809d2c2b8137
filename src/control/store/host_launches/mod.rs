//! The table of launched hosts.
//!
//! A row changes by a compare-and-set on the part that the state machine knows, so that of several
//! processes one runs the launch command, and a host joins before or after the launch is given up.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, EntityTrait, QueryFilter, QueryOrder,
    TransactionTrait, UpdateMany, sea_query::Expr,
};

use super::{
    HostMode, NewRegisteredHost, RegisteredHostRow, Store, StoreError, UniqueConstraint, corrupt,
    entity::{host_launch, host_launch::Column},
    from_millis,
    registered_hosts::insert_registered_host,
    to_millis,
};
use crate::{
    api::{
        ids::{HostId, LaunchId},
        viewport::Viewport,
    },
    control::fleet::{
        LaunchOptions,
        registered::{LaunchEvent, LaunchLife, LaunchState},
    },
};

#[cfg(test)]
mod tests;

/// A launched host, or one that is to be launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLaunchRow {
    pub id: LaunchId,
    pub slot: Option<u32>,
    pub life: LaunchLife,
    /// The options of the browser for which the host is launched.
    pub options: LaunchOptions,
    /// `None` before the launch command is started.
    pub token: Option<LaunchToken>,
    pub created_at: DateTime<Utc>,
    /// When the life last changed.
    pub changed_at: DateTime<Utc>,
}

/// The join token of a launch: its digest, never its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchToken {
    pub public_part: String,
    pub digest: [u8; 32],
    pub expires_at: DateTime<Utc>,
}

fn life_of(row: &host_launch::Model) -> Result<LaunchLife, StoreError> {
    let mut states = LaunchState::ALL.into_iter();
    let state = states.find(|state| state.as_str() == row.state);
    let engine_id = row.engine_id.as_deref().map(str::parse).transpose();
    let host = row.host_id.as_deref().map(str::parse).transpose();
    Ok(LaunchLife {
        state: state.ok_or_else(|| corrupt("launch state", &row.state))?,
        engine_id: engine_id.map_err(|_| corrupt("engine id", &row.id))?,
        host: host.map_err(|_| corrupt("host id", &row.id))?,
    })
}

fn token_of(row: &host_launch::Model) -> Result<Option<LaunchToken>, StoreError> {
    let (Some(public_part), Some(digest), Some(expires_at)) = (
        &row.token_public_part,
        &row.token_digest,
        row.token_expires_at,
    ) else {
        return Ok(None);
    };
    let digest = digest.as_slice().try_into();
    Ok(Some(LaunchToken {
        public_part: public_part.clone(),
        digest: digest.map_err(|_| corrupt("token digest", &row.id))?,
        expires_at: from_millis(expires_at)?,
    }))
}

impl TryFrom<host_launch::Model> for HostLaunchRow {
    type Error = StoreError;

    fn try_from(row: host_launch::Model) -> Result<Self, StoreError> {
        let number = |value: i32| u32::try_from(value).map_err(|_| corrupt("launch", &row.id));
        Ok(HostLaunchRow {
            slot: row.slot.map(number).transpose()?,
            life: life_of(&row)?,
            options: LaunchOptions {
                mode: HostMode {
                    headless: row.headless,
                    kiosk_mode: row.kiosk_mode,
                },
                viewport: Viewport {
                    width: number(row.width)?,
                    height: number(row.height)?,
                    refresh_rate: number(row.refresh_rate)?,
                },
            },
            token: token_of(&row)?,
            created_at: from_millis(row.created_at)?,
            changed_at: from_millis(row.changed_at)?,
            id: row.id.parse().map_err(|_| corrupt("launch id", &row.id))?,
        })
    }
}

/// Converts a small number to the type of its column.
fn to_integer(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

impl Store {
    /// Inserts a launch. Returns false if another one has the slot.
    pub async fn request_host_launch(
        &self,
        slot: u32,
        options: &LaunchOptions,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let row = HostLaunchRow {
            id: LaunchId::generate(),
            slot: Some(slot),
            life: LaunchLife::requested(),
            options: options.clone(),
            token: None,
            created_at: now,
            changed_at: now,
        };
        match self.insert_host_launch(&row).await {
            Err(StoreError::UniqueViolation(UniqueConstraint::HostLaunchSlot)) => Ok(false),
            inserted => inserted.map(|()| true),
        }
    }

    /// Inserts a launch as it is.
    pub async fn insert_host_launch(&self, row: &HostLaunchRow) -> Result<(), StoreError> {
        let (life, options, token) = (&row.life, &row.options, row.token.as_ref());
        let row = host_launch::Model {
            id: row.id.to_string(),
            slot: row.slot.map(to_integer),
            state: life.state.as_str().to_owned(),
            engine_id: life.engine_id.as_ref().map(ToString::to_string),
            host_id: life.host.as_ref().map(HostId::to_string),
            headless: options.mode.headless,
            kiosk_mode: options.mode.kiosk_mode,
            width: to_integer(options.viewport.width),
            height: to_integer(options.viewport.height),
            refresh_rate: to_integer(options.viewport.refresh_rate),
            token_public_part: token.map(|token| token.public_part.clone()),
            token_digest: token.map(|token| token.digest.to_vec()),
            token_expires_at: token.map(|token| to_millis(token.expires_at)),
            created_at: to_millis(row.created_at),
            changed_at: to_millis(row.changed_at),
        };
        let insert = host_launch::ActiveModel::from(row).reset_all();
        host_launch::Entity::insert(insert)
            .exec_without_returning(&self.writer)
            .await?;
        self.checkpoint().await;
        Ok(())
    }

    /// Lists all launches, the oldest first.
    pub async fn list_host_launches(&self) -> Result<Vec<HostLaunchRow>, StoreError> {
        let rows = host_launch::Entity::find()
            .order_by_asc(Column::Id)
            .all(&self.db)
            .await?;
        rows.into_iter().map(HostLaunchRow::try_from).collect()
    }

    /// Finds a launch.
    pub async fn find_host_launch(
        &self,
        id: &LaunchId,
    ) -> Result<Option<HostLaunchRow>, StoreError> {
        let row = host_launch::Entity::find_by_id(id.as_str())
            .one(&self.db)
            .await?;
        row.map(HostLaunchRow::try_from).transpose()
    }

    /// Finds the launch whose join token has that public part.
    pub async fn find_host_launch_by_token(
        &self,
        public_part: &str,
    ) -> Result<Option<HostLaunchRow>, StoreError> {
        let row = host_launch::Entity::find()
            .filter(Column::TokenPublicPart.eq(public_part))
            .one(&self.db)
            .await?;
        row.map(HostLaunchRow::try_from).transpose()
    }

    /// Records that the launch command is about to run, and its join token. Returns false, and
    /// changes nothing, if the launch is not as `row` any more: another process runs the command.
    pub async fn start_host_launch(
        &self,
        row: &HostLaunchRow,
        after: &LaunchLife,
        token: &LaunchToken,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let started = changing(row, after, now)
            .col_expr(Column::TokenPublicPart, Expr::value(&token.public_part))
            .col_expr(Column::TokenDigest, Expr::value(token.digest.to_vec()))
            .col_expr(
                Column::TokenExpiresAt,
                Expr::value(to_millis(token.expires_at)),
            )
            .exec(&self.writer)
            .await?;
        // The machine must not outlive its row, whatever fails.
        self.checkpoint().await;
        Ok(started.rows_affected > 0)
    }

    /// Changes a launch from `row` to `after`, and deletes it if that is `Gone`. Returns false, and
    /// changes nothing, if the launch is not as `row` any more.
    pub async fn change_host_launch(
        &self,
        row: &HostLaunchRow,
        after: &LaunchLife,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let affected = match after.state {
            LaunchState::Gone => {
                let deleted = host_launch::Entity::delete_many().filter(is_as(row));
                deleted.exec(&self.writer).await?.rows_affected
            }
            _ => {
                let changed = changing(row, after, now).exec(&self.writer).await?;
                changed.rows_affected
            }
        };
        Ok(affected > 0)
    }

    /// Inserts the row of a host that registers with the join token of a launch, and ties it to the
    /// launch. Both happen, or none of them. Returns `None` if the token has been used, or the
    /// launch is to be destroyed.
    pub async fn create_launched_host(
        &self,
        id: &LaunchId,
        new: NewRegisteredHost,
        now: DateTime<Utc>,
    ) -> Result<Option<RegisteredHostRow>, StoreError> {
        let host = HostId::generate();
        // The launch command may exit meanwhile, and change the row.
        while let Some(row) = self.find_host_launch(id).await? {
            let Ok(after) = row.life.apply(LaunchEvent::Joined(host.clone())) else {
                return Ok(None);
            };
            let transaction = self.writer.begin().await?;
            if changing(&row, &after, now)
                .exec(&transaction)
                .await?
                .rows_affected
                == 0
            {
                transaction.rollback().await?;
                continue;
            }
            let created = insert_registered_host(&transaction, &host, new, now).await?;
            transaction.commit().await?;
            self.checkpoint().await;
            return Ok(Some(created));
        }
        Ok(None)
    }
}

/// Returns the condition that a launch is still as `row`.
fn is_as(row: &HostLaunchRow) -> Condition {
    let life = &row.life;
    let is_same = |column: Column, value: Option<&str>| match value {
        Some(value) => column.eq(value),
        None => column.is_null(),
    };
    Condition::all()
        .add(Column::Id.eq(row.id.as_str()))
        .add(Column::State.eq(life.state.as_str()))
        .add(is_same(
            Column::EngineId,
            life.engine_id.as_ref().map(|id| id.as_str()),
        ))
        .add(is_same(
            Column::HostId,
            life.host.as_ref().map(HostId::as_str),
        ))
}

/// Begins the change of a launch from `row` to `after`.
fn changing(
    row: &HostLaunchRow,
    after: &LaunchLife,
    now: DateTime<Utc>,
) -> UpdateMany<host_launch::Entity> {
    let engine_id = after.engine_id.as_ref().map(ToString::to_string);
    let host = after.host.as_ref().map(HostId::to_string);
    host_launch::Entity::update_many()
        .filter(is_as(row))
        .col_expr(Column::State, Expr::value(after.state.as_str()))
        .col_expr(Column::EngineId, Expr::value(engine_id))
        .col_expr(Column::HostId, Expr::value(host))
        .col_expr(Column::ChangedAt, Expr::value(to_millis(now)))
}
