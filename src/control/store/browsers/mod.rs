//! The table of browsers, with their tags.
//!
//! [`lifecycle`] and [`attached_profile`] write rows, [`queries`] reads them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::{
    ControlProcessId, StoreError, UniqueConstraint, corrupt, entity::browser, from_millis,
};
use crate::{
    api::{
        ids::{BrowserId, HostId, PoolId, ProfileId, ProjectId},
        viewport::Viewport,
    },
    control::browsers::state::{EndReason, State},
};

mod attached_profile;
mod lifecycle;
mod queries;
#[cfg(test)]
mod tests;

pub use attached_profile::AttachProfileError;
pub(super) use lifecycle::{insert_browser, reserve_profile};
pub(super) use queries::{count_live, count_live_by_pool, has_not_ended, is_active, is_live};

/// A row of the table of browsers, with the browser's tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserRow {
    pub id: BrowserId,
    pub project_id: ProjectId,
    pub name: Option<String>,
    pub state: State,
    pub headless: bool,
    pub kiosk_mode: bool,
    pub timeout_seconds: u32,
    pub viewport: Viewport,
    pub start_url: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub profile: Option<BrowserProfileRow>,
    pub created_at: DateTime<Utc>,
    pub deleted_at: Option<DateTime<Utc>>,
    /// The pool that the browser was leased from.
    pub pool: Option<PoolOrigin>,
}

/// A pool as its browsers know it, also when it is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolOrigin {
    pub id: PoolId,
    pub name: Option<String>,
}

/// The profile of a browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserProfileRow {
    pub id: ProfileId,
    /// `None` if it has none, or was not read.
    pub name: Option<String>,
    /// Whether the profile is saved when the browser ends.
    pub save_changes: bool,
}

/// A browser with its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveBrowser {
    pub row: BrowserRow,
    /// The host that the browser was published on, and its generation.
    pub host: Option<(HostId, u64)>,
    /// When the browser was last known to be in use.
    pub used_at: DateTime<Utc>,
}

/// A browser that is being created or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedBrowser {
    pub id: BrowserId,
    /// Whether it is being created.
    pub is_creating: bool,
    /// The process that does that.
    pub process: Option<ControlProcessId>,
    /// Whether it is to save its profile.
    pub saves_profile: bool,
    pub since: DateTime<Utc>,
}

/// The values of a new row.
#[derive(Debug, Clone)]
pub struct NewBrowserRow {
    pub id: BrowserId,
    pub project_id: ProjectId,
    pub name: Option<String>,
    pub headless: bool,
    pub kiosk_mode: bool,
    pub timeout_seconds: u32,
    pub viewport: Viewport,
    pub start_url: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub profile: Option<BrowserProfileRow>,
    pub idempotency: Option<Creation>,
    pub pool: Option<PoolOrigin>,
}

/// Why the row of a browser was not inserted.
#[derive(Debug, thiserror::Error)]
pub enum CreateBrowserError {
    #[error("the project is archived or deleted")]
    ProjectInactive,
    #[error("the browser limit of the project is reached ({0})")]
    LimitReached(u32),
    #[error("the profile does not exist")]
    ProfileNotFound,
    #[error("another browser is to save the profile")]
    ProfileInUse,
    #[error("the profile is being saved")]
    ProfileBeingSaved,
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for CreateBrowserError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UniqueViolation(UniqueConstraint::ProfileWriteLock) => {
                CreateBrowserError::ProfileInUse
            }
            other => CreateBrowserError::Store(other),
        }
    }
}

/// The idempotency key and the digest of the request that created a browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    pub key: String,
    pub request_digest: [u8; 32],
}

/// The columns to change. `None` leaves a column as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    pub name: Option<String>,
    pub tags: Option<BTreeMap<String, String>>,
    pub viewport: Option<Viewport>,
    pub start_url: Option<String>,
}

/// Selects rows by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StateFilter {
    #[default]
    Active,
    Deleted,
    All,
}

/// A page of a list, with its filters.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    pub state: StateFilter,
    /// Searched in the id and the name, ignoring case.
    pub query: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub offset: u64,
    pub limit: u64,
}

const CREATING: &str = "creating";
const ACTIVE: &str = "active";
const DELETING: &str = "deleting";
const DELETED: &str = "deleted";

fn end_reason_text(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Deleted => "deleted",
        EndReason::Idle => "idle",
        EndReason::Gone => "gone",
    }
}

fn parse_state(state: &str, reason: Option<&str>) -> Result<State, StoreError> {
    let reason = || match reason {
        Some("deleted") => Ok(EndReason::Deleted),
        Some("idle") => Ok(EndReason::Idle),
        Some("gone") => Ok(EndReason::Gone),
        other => Err(corrupt("end reason", other.unwrap_or("NULL"))),
    };
    Ok(match state {
        CREATING => State::Creating,
        ACTIVE => State::Active,
        DELETING => State::Deleting(reason()?),
        DELETED => State::Deleted(reason()?),
        other => return Err(corrupt("browser state", other)),
    })
}

pub(super) fn to_browser_row(
    row: browser::Model,
    tags: BTreeMap<String, String>,
) -> Result<BrowserRow, StoreError> {
    let pixels = |value: i32| u32::try_from(value).map_err(|_| corrupt("viewport", value));
    let profile = row.profile_id.map(|id| -> Result<_, StoreError> {
        Ok(BrowserProfileRow {
            id: id.parse().map_err(|_| corrupt("profile id", id))?,
            name: None,
            save_changes: row.save_changes,
        })
    });
    Ok(BrowserRow {
        profile: profile.transpose()?,
        state: parse_state(&row.state, row.end_reason.as_deref())?,
        id: row.id.parse().map_err(|_| corrupt("browser id", &row.id))?,
        project_id: row
            .project_id
            .parse()
            .map_err(|_| corrupt("project id", &row.project_id))?,
        name: row.name,
        headless: row.headless,
        kiosk_mode: row.kiosk_mode,
        timeout_seconds: u32::try_from(row.timeout_seconds)
            .map_err(|_| corrupt("timeout", row.timeout_seconds))?,
        viewport: Viewport {
            width: pixels(row.viewport_width)?,
            height: pixels(row.viewport_height)?,
            refresh_rate: pixels(row.refresh_rate)?,
        },
        start_url: row.start_url,
        tags,
        created_at: from_millis(row.created_at)?,
        deleted_at: row.deleted_at.map(from_millis).transpose()?,
        pool: to_pool_name(row.pool_id, row.pool_name)?,
    })
}

fn to_pool_name(
    id: Option<String>,
    name: Option<String>,
) -> Result<Option<PoolOrigin>, StoreError> {
    let id = id.map(|id| id.parse().map_err(|_| corrupt("pool id", id)));
    Ok(id.transpose()?.map(|id| PoolOrigin { id, name }))
}

#[cfg(test)]
impl NewBrowserRow {
    /// Returns the values of a headless browser without a name.
    pub(crate) fn sample(project: &ProjectId) -> NewBrowserRow {
        NewBrowserRow {
            id: BrowserId::generate(),
            project_id: project.clone(),
            name: None,
            headless: true,
            kiosk_mode: false,
            timeout_seconds: 60,
            viewport: Viewport::default(),
            start_url: None,
            tags: BTreeMap::new(),
            profile: None,
            idempotency: None,
            pool: None,
        }
    }
}
