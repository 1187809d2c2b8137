//! Pools of browsers that are started ahead of time.

use deserr::{DeserializeError, Deserr, IntoValue, Map, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    browsers::{BrowserName, IdleTimeout, Tags},
    field::{self, Fields, Flag, WholeNumber, with_unsupported_launch_fields},
    ids::{BrowserId, PoolId, ProfileId},
    name::Name,
    paging::{Limit, Offset, Page, SearchText},
    profiles::{ProfileRef, ProfileSelection, ProfileSelectionFields},
    start_url::StartUrl,
    time::Timestamp,
    viewport::{Viewport, ViewportRequest},
};

/// A pool of browsers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    pub id: PoolId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub created_at: Timestamp,
    /// The time of the last change of a setting.
    pub updated_at: Timestamp,
    /// Browsers that can be acquired at once.
    pub available_count: u64,
    /// Browsers that clients have.
    pub acquired_count: u64,
    /// Clients that wait for a browser.
    pub waiting_count: u64,
    pub browser_pool_config: BrowserPoolConfig,
    /// Identifies what the browsers are started with. A browser that was started with anything else
    /// is never handed out.
    pub config_hash: String,
    /// The profile that the browsers start with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<ProfileId>,
    /// Always empty: not supported by this build.
    pub extension_ids: Vec<String>,
    /// The region of the server.
    pub region: String,
}

/// The settings of a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BrowserPoolConfig {
    /// The number of browsers, acquired ones included.
    pub size: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The percentage of the size that is started per minute at most.
    pub fill_rate_per_minute: u32,
    /// The idle timeout of acquired browsers in seconds.
    pub timeout_seconds: u32,
    pub headless: bool,
    pub kiosk_mode: bool,
    /// Always `false`: not supported by this build.
    pub stealth: bool,
    pub viewport: Viewport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_url: Option<String>,
    /// The age in seconds at which a host is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age_seconds: Option<u32>,
    /// The number of leases after which a host is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_leases: Option<u32>,
    /// The profile that the browsers start with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<StartProfile>,
    /// Whether idle browsers are replaced when the profile gets a new version.
    pub refresh_on_profile_update: bool,
    /// The region of the server.
    pub region: String,
}

/// The profile that the browsers of a pool start with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartProfile {
    pub id: ProfileId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

with_unsupported_launch_fields! {
    /// The properties of a new pool.
    #[derive(Debug, Clone, PartialEq, Deserr, ToSchema)]
    pub struct CreatePool {
        /// The number of browsers, acquired ones included.
        #[schema(value_type = u32, maximum = 10_000)]
        pub size: PoolSize,
        /// Name of 1–255 characters (`A-Z a-z 0-9 . _ -`), unique among the project's pools. It
        /// must not have the form of a pool id.
        #[deserr(default)]
        #[schema(value_type = Option<String>)]
        pub name: Option<PoolName>,
        /// The percentage of the size that is started per minute at most, but at least one browser.
        #[deserr(default)]
        #[schema(value_type = Option<u32>, minimum = 1, maximum = 10_000, default = 25)]
        pub fill_rate_per_minute: Option<FillRatePercent>,
        /// The idle timeout of acquired browsers in seconds.
        #[deserr(default)]
        #[schema(value_type = Option<u32>, minimum = 10, maximum = 259_200, default = 600)]
        pub timeout_seconds: Option<IdleTimeout>,
        /// The age in seconds at which a host is replaced, up to a tenth earlier. The replacement
        /// comes first. 0 for no limit, which is the default.
        #[deserr(default)]
        #[schema(value_type = Option<u32>, maximum = 31_536_000)]
        pub max_age_seconds: Option<MaxAge>,
        /// The number of leases after which a host is replaced. 0 for no limit, which is the
        /// default.
        #[deserr(default)]
        #[schema(value_type = Option<u32>, maximum = 1_000_000)]
        pub max_leases: Option<MaxLeases>,
        /// Run without a display.
        #[deserr(default)]
        #[schema(default = false)]
        pub headless: Option<bool>,
        /// Let the page fill the screen, without the browser's controls.
        #[deserr(default)]
        #[schema(default = false)]
        pub kiosk_mode: Option<bool>,
        /// Size of the screen. 1920×1080 at 25 Hz by default.
        #[deserr(default)]
        pub viewport: Option<ViewportRequest>,
        /// URL of the first page, with the scheme http, https, about, data or file. It is opened
        /// when a browser is started for the pool.
        #[deserr(default)]
        #[schema(value_type = Option<String>)]
        pub start_url: Option<StartUrl>,
        /// Profile that the browsers start with. None of them saves it.
        #[deserr(default)]
        #[schema(inline, value_type = Option<PoolProfileFields>)]
        pub profile: Option<PoolProfileChoice>,
        /// Replace idle browsers when the profile gets a new version.
        #[deserr(default)]
        #[schema(default = false)]
        pub refresh_on_profile_update: Option<bool>,
    }
}

with_unsupported_launch_fields! {
    /// Changes of a pool. Absent and null fields are not changed.
    #[derive(Debug, Clone, Default, PartialEq, Deserr, ToSchema)]
    pub struct UpdatePool {
        /// The number of browsers, acquired ones included.
        #[deserr(default)]
        #[schema(value_type = Option<u32>, maximum = 10_000)]
        pub size: Option<PoolSize>,
        /// New name of 1–255 characters (`A-Z a-z 0-9 . _ -`), unique among the project's pools.
        #[deserr(default)]
        #[schema(value_type = Option<String>)]
        pub name: Option<PoolName>,
        /// The percentage of the size that is started per minute at most, but at least one browser.
        #[deserr(default)]
        #[schema(value_type = Option<u32>, minimum = 1, maximum = 10_000)]
        pub fill_rate_per_minute: Option<FillRatePercent>,
        /// The idle timeout in seconds of browsers that are acquired from now on.
        #[deserr(default)]
        #[schema(value_type = Option<u32>, minimum = 10, maximum = 259_200)]
        pub timeout_seconds: Option<IdleTimeout>,
        /// The age in seconds at which a host is replaced. 0 removes the limit.
        #[deserr(default)]
        #[schema(value_type = Option<u32>, maximum = 31_536_000)]
        pub max_age_seconds: Option<MaxAge>,
        /// The number of leases after which a host is replaced. 0 removes the limit.
        #[deserr(default)]
        #[schema(value_type = Option<u32>, maximum = 1_000_000)]
        pub max_leases: Option<MaxLeases>,
        /// Run without a display.
        #[deserr(default)]
        pub headless: Option<bool>,
        /// Let the page fill the screen, without the browser's controls.
        #[deserr(default)]
        pub kiosk_mode: Option<bool>,
        /// Size of the screen.
        #[deserr(default)]
        pub viewport: Option<ViewportRequest>,
        /// URL of the first page, with the scheme http, https, about, data or file.
        #[deserr(default)]
        #[schema(value_type = Option<String>)]
        pub start_url: Option<StartUrl>,
        /// Replace all idle browsers, not only those of another configuration.
        #[deserr(default)]
        #[schema(default = false)]
        pub discard_all_idle: Option<bool>,
        /// Profile that the browsers start with. An empty object removes it.
        #[deserr(default)]
        #[schema(inline, value_type = Option<PoolProfileFields>)]
        pub profile: Option<PoolProfileChoice>,
        /// Replace idle browsers when the profile gets a new version.
        #[deserr(default)]
        pub refresh_on_profile_update: Option<bool>,
    }
}

/// The profile of a pool in a request. `None` for an empty object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolProfileChoice(pub Option<ProfileRef>);

/// The fields of [`PoolProfileChoice`].
#[derive(Debug, ToSchema)]
pub struct PoolProfileFields {
    /// Id of the profile.
    pub id: Option<String>,
    /// Name of the profile, instead of its id.
    #[schema(min_length = 1, max_length = 255)]
    pub name: Option<String>,
    /// Must not be true: many browsers share the profile of a pool. A lease can have its own.
    #[schema(default = false)]
    pub save_changes: Option<bool>,
}

impl<E: DeserializeError> Deserr<E> for PoolProfileChoice {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        if matches!(&value, Value::Map(map) if map.len() == 0) {
            return Ok(PoolProfileChoice(None));
        }
        let mut fields = Fields::new(value, location)?;
        let profile = ProfileRef::read(&mut fields, "id");
        if let Ok(Some(true)) = fields.try_optional::<bool>("save_changes") {
            let message = "must not be true, because many browsers share the profile of a pool";
            fields.reject("save_changes", message);
        }
        fields.finish(profile.map(|profile| PoolProfileChoice(Some(profile))))
    }
}

/// Filters and paging of the list of pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListPools {
    /// Exact name of the pool. At most 255 characters.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "checkout")]
    pub name: Option<SearchText>,
    /// Text to search for in id and name, case-insensitive. At most 255 characters.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "check")]
    pub query: Option<SearchText>,
    /// Region of the pool. At most 255 characters.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "us-east")]
    pub region: Option<SearchText>,
    #[deserr(default)]
    #[param(ignore)]
    pub limit: Limit,
    #[deserr(default)]
    #[param(ignore)]
    pub offset: Offset,
}

impl ListPools {
    #[must_use]
    pub fn page(&self) -> Page {
        Page {
            limit: self.limit,
            offset: self.offset,
        }
    }
}

/// The options of a lease. Those that are absent are the pool's.
#[derive(Debug, Clone, Default, PartialEq, Deserr, ToSchema)]
pub struct AcquireBrowser {
    /// The longest wait for a browser in seconds. Many HTTP clients give up after 60 s.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, maximum = 300, default = 30)]
    pub acquire_timeout_seconds: Option<AcquireTimeout>,
    /// Name of 1–255 characters (`A-Z a-z 0-9 . _ -`), unique among the project's active browsers.
    #[deserr(default)]
    #[schema(value_type = Option<String>)]
    pub name: Option<BrowserName>,
    /// Up to 50 tags, with keys of 1–128 and values of up to 256 characters.
    #[deserr(default)]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub tags: Option<Tags>,
    /// URL to open before the browser is handed over, with the scheme http, https, about, data or
    /// file.
    #[deserr(default)]
    #[schema(value_type = Option<String>)]
    pub start_url: Option<StartUrl>,
    /// The profile that the browser starts with. It is loaded before the browser is handed over,
    /// which takes about a second.
    #[deserr(default)]
    #[schema(inline, value_type = Option<ProfileSelectionFields>)]
    pub profile: Option<ProfileSelection>,
}

/// The browser to release.
#[derive(Debug, Clone, PartialEq, Deserr, ToSchema)]
pub struct ReleaseBrowser {
    /// Id of the session.
    pub session_id: SessionIdField,
    /// Whether the host is used again, with a new browser, or replaced, too.
    #[deserr(default)]
    #[schema(default = true)]
    pub reuse: Option<bool>,
}

/// Options of the deletion of a pool, in the body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, ToSchema)]
pub struct DeletePool {
    /// End the browsers that clients have, too.
    #[deserr(default)]
    #[schema(default = false)]
    pub force: Option<bool>,
}

/// Options of the deletion of a pool, in the query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DeletePoolQuery {
    /// End the browsers that clients have, too.
    #[deserr(default)]
    #[param(value_type = Option<bool>, default = false)]
    pub force: Option<Flag>,
}

/// The number of browsers of a pool.
pub type PoolSize = WholeNumber<0, 10_000>;
/// The percentage of a pool's size that is started per minute.
pub type FillRatePercent = WholeNumber<1, 10_000>;
/// The age in seconds at which a host is replaced, or 0.
pub type MaxAge = WholeNumber<0, 31_536_000>;
/// The number of leases after which a host is replaced, or 0.
pub type MaxLeases = WholeNumber<0, 1_000_000>;
/// The longest wait for a browser of a pool in seconds.
pub type AcquireTimeout = WholeNumber<0, 300>;

/// The default percentage of a pool's size that is started per minute.
pub const DEFAULT_FILL_RATE_PERCENT: u32 = 25;
/// The default of the longest wait for a browser in seconds.
pub const DEFAULT_ACQUIRE_TIMEOUT_SECONDS: u32 = 30;
/// The default idle timeout of the browsers of a pool in seconds.
pub const DEFAULT_TIMEOUT_SECONDS: u32 = 600;

/// The name of a pool, which must not have the form of a pool id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolName(Name);

impl From<PoolName> for String {
    fn from(name: PoolName) -> String {
        name.0.into()
    }
}

impl<E: DeserializeError> Deserr<E> for PoolName {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| {
            if text.parse::<PoolId>().is_ok() {
                return Err("must not have the form of a pool id".to_owned());
            }
            Name::parse(text).map(PoolName)
        })
    }
}

/// The id of a session in a request body.
#[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6")]
pub struct SessionIdField(pub BrowserId);

impl<E: DeserializeError> Deserr<E> for SessionIdField {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| {
            let id = text.parse();
            id.map(SessionIdField)
                .map_err(|_| "must be the id of a browser".to_owned())
        })
    }
}
