//! The rows of hosts that register themselves, in the table of hosts.
//!
//! A change of a host's life names the life that it expects, so that of two concurrent changes one
//! has no effect.

use std::{collections::BTreeMap, net::SocketAddr};

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter, QueryOrder,
    QuerySelect, Select, TransactionTrait, sea_query::Expr,
};

use super::{
    Fleet, Hint, Store, StoreError, corrupt,
    entity::host,
    from_millis,
    hosts::{HostMode, STATES, fleet_text, life_of, state_text, to_generation_column, unchanged},
    join_tokens::{labels_text, parse_labels, take_join_token_use},
    to_millis,
};
use crate::{
    api::{
        fleet::{HostCapabilities, ScreenPixels},
        ids::{HostId, JoinTokenId},
    },
    control::hosts::state::{HostLife, State},
    system::identity::HostPublicKey,
};

/// A host that has registered itself and is not gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredHostRow {
    pub id: HostId,
    pub life: HostLife,
    pub machine: HostMachine,
    pub labels: BTreeMap<String, String>,
    pub public_key: HostPublicKey,
    pub heartbeat_at: DateTime<Utc>,
    pub created_at: DateTime<Utc>,
    pub changed_at: DateTime<Utc>,
}

/// The properties of a host's machine, as its agent has reported them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMachine {
    pub address: SocketAddr,
    pub boot_id: String,
    pub version: String,
    pub capabilities: HostCapabilities,
}

impl HostMachine {
    /// Returns the mode of the sessions that the host can run.
    #[must_use]
    pub fn mode(&self) -> HostMode {
        HostMode {
            headless: !self.capabilities.display,
            kiosk_mode: self.capabilities.kiosk_mode,
        }
    }
}

/// The values of a new row.
#[derive(Debug, Clone)]
pub struct NewRegisteredHost {
    pub machine: HostMachine,
    pub labels: BTreeMap<String, String>,
    pub public_key: HostPublicKey,
}

impl TryFrom<host::Model> for RegisteredHostRow {
    type Error = StoreError;

    fn try_from(row: host::Model) -> Result<Self, StoreError> {
        let id = &row.id;
        let missing = |field| corrupt(field, id);
        let address = row.address.as_deref().map(str::parse);
        let capabilities = row.capabilities.as_deref().map(serde_json::from_str);
        let public_key = row.public_key.as_deref().map(HostPublicKey::from_point);
        Ok(RegisteredHostRow {
            life: life_of(&row)?,
            machine: HostMachine {
                address: address
                    .and_then(Result::ok)
                    .ok_or_else(|| missing("host address"))?,
                boot_id: row.boot_id.ok_or_else(|| corrupt("boot id", id))?,
                version: row.version.ok_or_else(|| corrupt("host version", id))?,
                capabilities: capabilities
                    .and_then(Result::ok)
                    .ok_or_else(|| missing("host capabilities"))?,
            },
            labels: parse_labels(row.labels.as_deref().unwrap_or("{}"))?,
            public_key: public_key
                .and_then(Result::ok)
                .ok_or_else(|| missing("host key"))?,
            heartbeat_at: from_millis(row.heartbeat_at.ok_or_else(|| missing("heartbeat"))?)?,
            created_at: from_millis(row.created_at)?,
            changed_at: from_millis(row.changed_at)?,
            id: row.id.parse().map_err(|_| corrupt("host id", &row.id))?,
        })
    }
}

impl Store {
    /// Inserts the row of a host that registers with a join token, and takes a use of the token.
    /// Returns `None` if the token has none. Both happen, or none of them.
    pub async fn create_registered_host(
        &self,
        token: &JoinTokenId,
        new: NewRegisteredHost,
        now: DateTime<Utc>,
    ) -> Result<Option<RegisteredHostRow>, StoreError> {
        let transaction = self.writer.begin().await?;
        if !take_join_token_use(&transaction, token, now).await? {
            return Ok(None);
        }
        let created = insert_registered_host(&transaction, &HostId::generate(), new, now).await?;
        transaction.commit().await?;
        self.checkpoint().await;
        Ok(Some(created))
    }

    /// Finds a registered host that is not gone.
    pub async fn find_registered_host(
        &self,
        id: &HostId,
    ) -> Result<Option<RegisteredHostRow>, StoreError> {
        self.find_host_where(host::Column::Id.eq(id.as_str())).await
    }

    /// Finds the registered host with that public key.
    pub async fn find_registered_host_by_key(
        &self,
        key: &HostPublicKey,
    ) -> Result<Option<RegisteredHostRow>, StoreError> {
        self.find_host_where(host::Column::PublicKey.eq(key.as_point().to_vec()))
            .await
    }

    async fn find_host_where(
        &self,
        condition: Expr,
    ) -> Result<Option<RegisteredHostRow>, StoreError> {
        let found = existing().filter(condition).one(&self.db).await?;
        found.map(TryInto::try_into).transpose()
    }

    /// Lists the registered hosts that are not gone, newest first, with one more than the limit if
    /// there are more.
    pub async fn list_registered_hosts(
        &self,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<RegisteredHostRow>, StoreError> {
        existing()
            .order_by_desc(host::Column::Id)
            .offset(offset)
            .limit(limit + 1)
            .all(&self.db)
            .await?
            .into_iter()
            .map(TryInto::try_into)
            .collect()
    }

    /// Returns up to `limit` registered hosts that have not reported since `before` and are not
    /// lost yet.
    pub async fn silent_hosts(
        &self,
        before: DateTime<Utc>,
        limit: u64,
    ) -> Result<Vec<RegisteredHostRow>, StoreError> {
        existing()
            .filter(host::Column::State.ne(state_text(State::Lost)))
            .filter(host::Column::HeartbeatAt.lt(to_millis(before)))
            .order_by_asc(host::Column::HeartbeatAt)
            .limit(limit)
            .all(&self.db)
            .await?
            .into_iter()
            .map(TryInto::try_into)
            .collect()
    }

    /// Changes the life of a host from that of `row` to `next`. Returns false if the host has
    /// another life meanwhile, or has reported since `before`.
    pub async fn change_silent_host(
        &self,
        row: &RegisteredHostRow,
        next: &HostLife,
        before: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let change = self
            .changing(&row.id, &row.life, next, now)?
            .filter(host::Column::HeartbeatAt.lt(to_millis(before)))
            .exec(&self.writer)
            .await?;
        Ok(change.rows_affected > 0)
    }

    /// Records a report of a host at `now`, with the properties of its machine and its new life.
    /// Returns false if the host has another life than that of `row` meanwhile.
    pub async fn record_host_report(
        &self,
        row: &RegisteredHostRow,
        machine: &HostMachine,
        next: &HostLife,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let mut change = match *next == row.life {
            true => unchanged(&row.id, &row.life),
            false => self.changing(&row.id, &row.life, next, now),
        }?
        .col_expr(host::Column::HeartbeatAt, later_heartbeat(now));
        if *machine != row.machine {
            let address = machine.address.to_string();
            let (mode, capabilities) = (machine.mode(), &machine.capabilities);
            let text = capabilities_text(capabilities);
            let max = capabilities.max_viewport;
            change = change
                .col_expr(host::Column::Address, Expr::value(address))
                .col_expr(host::Column::BootId, Expr::value(&machine.boot_id))
                .col_expr(host::Column::Version, Expr::value(&machine.version))
                .col_expr(host::Column::Capabilities, Expr::value(text))
                .col_expr(host::Column::Headless, Expr::value(mode.headless))
                .col_expr(host::Column::KioskMode, Expr::value(mode.kiosk_mode))
                .col_expr(host::Column::MaxWidth, Expr::value(to_side(max.width)))
                .col_expr(host::Column::MaxHeight, Expr::value(to_side(max.height)));
        }
        let is_recorded = change.exec(&self.writer).await?.rows_affected > 0;
        if is_recorded && next.state == State::Ready && *next != row.life {
            self.hint(Hint::Hosts);
        }
        Ok(is_recorded)
    }

    /// Returns the number of hosts of all fleets in each state but `Gone`.
    pub async fn count_hosts(&self) -> Result<Vec<(&'static str, u64)>, StoreError> {
        let counted: Vec<(String, i64)> = host::Entity::find()
            .select_only()
            .column(host::Column::State)
            .column_as(host::Column::Id.count(), "count")
            .group_by(host::Column::State)
            .into_tuple()
            .all(&self.db)
            .await?;
        let states = STATES.into_iter().filter(|state| *state != State::Gone);
        Ok(states
            .map(state_text)
            .map(|state| {
                let found = counted.iter().find(|(text, _)| text == state);
                let count = found.map_or(0, |(_, count)| *count);
                (state, u64::try_from(count).unwrap_or_default())
            })
            .collect())
    }

    /// Deletes the registered hosts that are gone or lost since before `before`. Returns how many.
    pub async fn purge_registered_hosts(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let ended = [State::Gone, State::Lost].map(state_text);
        let purged = host::Entity::delete_many()
            .filter(host::Column::Fleet.eq(fleet_text(Fleet::Registered)))
            .filter(host::Column::State.is_in(ended))
            .filter(host::Column::ChangedAt.lt(to_millis(before)))
            .exec(&self.writer)
            .await?;
        Ok(purged.rows_affected)
    }
}

/// Inserts the row of a host that registers.
pub(super) async fn insert_registered_host(
    db: &impl ConnectionTrait,
    id: &HostId,
    new: NewRegisteredHost,
    now: DateTime<Utc>,
) -> Result<RegisteredHostRow, StoreError> {
    let life = HostLife::starting(None);
    let mode = new.machine.mode();
    let row = host::Model {
        id: id.to_string(),
        fleet: fleet_text(Fleet::Registered).to_owned(),
        state: state_text(life.state).to_owned(),
        generation: to_generation_column(life.generation)?,
        session_id: None,
        draining: life.is_draining,
        restarting: life.is_restarting,
        headless: mode.headless,
        kiosk_mode: mode.kiosk_mode,
        max_width: Some(to_side(new.machine.capabilities.max_viewport.width)),
        max_height: Some(to_side(new.machine.capabilities.max_viewport.height)),
        address: Some(new.machine.address.to_string()),
        boot_id: Some(new.machine.boot_id),
        version: Some(new.machine.version),
        labels: Some(labels_text(&new.labels)),
        capabilities: Some(capabilities_text(&new.machine.capabilities)),
        public_key: Some(new.public_key.as_point().to_vec()),
        heartbeat_at: Some(to_millis(now)),
        created_at: to_millis(now),
        changed_at: to_millis(now),
        // Nothing follows from its first state.
        process_id: None,
        settled: false,
        pool_id: None,
        lease_count: 0,
    };
    let insert = host::ActiveModel::from(row.clone()).reset_all();
    host::Entity::insert(insert)
        .exec_without_returning(db)
        .await?;
    row.try_into()
}

/// Returns the later one of a heartbeat at `now` and the last one, which another process may have
/// recorded meanwhile.
fn later_heartbeat(now: DateTime<Utc>) -> Expr {
    let is_later = host::Column::HeartbeatAt.gt(to_millis(now));
    Expr::case(is_later, Expr::col(host::Column::HeartbeatAt))
        .finally(Expr::value(to_millis(now)))
        .into()
}

/// Selects the registered hosts that are not gone.
fn existing() -> Select<host::Entity> {
    host::Entity::find()
        .filter(host::Column::Fleet.eq(fleet_text(Fleet::Registered)))
        .filter(host::Column::State.ne(state_text(State::Gone)))
}

/// Converts a side of the largest viewport to the type of its column.
fn to_side(pixels: ScreenPixels) -> i32 {
    i32::try_from(pixels.get()).unwrap_or(i32::MAX)
}

fn capabilities_text(capabilities: &HostCapabilities) -> String {
    serde_json::json!(capabilities).to_string()
}

#[cfg(test)]
impl Store {
    /// Makes a host seem to have reported at some time for the last time.
    pub(crate) async fn set_heartbeat(
        &self,
        id: &HostId,
        time: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        host::Entity::update_many()
            .col_expr(host::Column::HeartbeatAt, Expr::value(to_millis(time)))
            .filter(host::Column::Id.eq(id.as_str()))
            .exec(&self.writer)
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
