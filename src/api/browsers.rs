//! Browsers: creation, changes, listing.

use std::collections::BTreeMap;

use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, Map, Value, ValueKind, ValuePointerRef,
    take_cf_content,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    field::{self, with_unsupported_launch_fields},
    ids::{BrowserId, PoolId},
    name::Name,
    paging::{Page, SearchText},
    profiles::{BrowserProfile, ProfileSelection, ProfileSelectionFields},
    start_url::StartUrl,
    time::Timestamp,
    viewport::{Viewport, ViewportRequest},
};

/// A browser session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Browser {
    /// Id of the session.
    pub session_id: BrowserId,
    pub created_at: Timestamp,
    /// Whether the browser runs without a display.
    pub headless: bool,
    /// Always `false`: not supported by this build.
    pub stealth: bool,
    /// Whether the page fills the screen without the browser's controls.
    pub kiosk_mode: bool,
    /// Idle timeout in seconds: the browser is deleted when it has not been used for this time.
    pub timeout_seconds: u32,
    /// WebSocket URL for Playwright, Puppeteer and other DevTools clients. Contains credentials.
    pub cdp_ws_url: String,
    /// Base URL of the session's routes.
    pub base_url: String,
    /// Page with the live screen and control of mouse, keyboard and clipboard. Anyone with this
    /// link can use them. Absent if the browser is headless or has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub browser_live_view_url: Option<String>,
    /// Page with the live screen, without control. Absent if the browser is headless or has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub browser_live_view_read_only_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub viewport: Viewport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_url: Option<String>,
    /// The profile that the browser started with, or that was loaded later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<BrowserProfile>,
    /// The time when the browser ended. Absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
    /// The pool that the browser was acquired from. Absent if it was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<BrowserPool>,
    /// The region of the server.
    pub region: String,
}

/// The pool that a browser was acquired from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrowserPool {
    pub id: PoolId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

with_unsupported_launch_fields! {
    /// The properties of a new browser.
    #[derive(Debug, Clone, Default, PartialEq, Deserr, ToSchema)]
    pub struct CreateBrowser {
        /// Run without a display.
        #[deserr(default)]
        #[schema(default = false)]
        pub headless: Option<bool>,
        /// Idle timeout in seconds: the browser is deleted when it has not been used for this time.
        #[deserr(default)]
        #[schema(value_type = Option<u32>, minimum = 10, maximum = 259_200, default = 60)]
        pub timeout_seconds: Option<IdleTimeout>,
        /// Size of the screen. 1920×1080 at 25 Hz by default.
        #[deserr(default)]
        pub viewport: Option<ViewportRequest>,
        /// Name of 1–255 characters (`A-Z a-z 0-9 . _ -`), unique among the project's active
        /// browsers.
        #[deserr(default)]
        #[schema(value_type = Option<String>)]
        pub name: Option<BrowserName>,
        /// Up to 50 tags, with keys of 1–128 and values of up to 256 characters.
        #[deserr(default)]
        #[schema(value_type = Option<BTreeMap<String, String>>)]
        pub tags: Option<Tags>,
        /// URL of the first page, with the scheme http, https, about, data or file.
        #[deserr(default)]
        #[schema(value_type = Option<String>)]
        pub start_url: Option<StartUrl>,
        /// Let the page fill the screen, without the browser's controls.
        #[deserr(default)]
        #[schema(default = false)]
        pub kiosk_mode: Option<bool>,
        /// Profile to start with.
        #[deserr(default)]
        #[schema(inline, value_type = Option<ProfileSelectionFields>)]
        pub profile: Option<ProfileSelection>,
    }
}

/// Changes of a browser. Absent and null fields are not changed.
#[derive(Debug, Clone, Default, PartialEq, Deserr, ToSchema)]
pub struct UpdateBrowser {
    /// New name of 1–255 characters (`A-Z a-z 0-9 . _ -`), unique among the project's active
    /// browsers.
    #[deserr(default)]
    #[schema(value_type = Option<String>)]
    pub name: Option<BrowserName>,
    /// Replaces all tags.
    #[deserr(default)]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub tags: Option<Tags>,
    #[deserr(default)]
    pub viewport: Option<ViewportRequest>,
    /// URL to open in the active tab, and after later restarts of the browser.
    #[deserr(default)]
    #[schema(value_type = Option<String>)]
    pub start_url: Option<StartUrl>,
    /// Profile to load, which restarts Chromium. Only for a browser that has none yet.
    #[deserr(default)]
    #[schema(inline, value_type = Option<ProfileSelectionFields>)]
    pub profile: Option<ProfileSelection>,
}

/// The status of a browser, as a filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, ToSchema)]
#[deserr(rename_all = lowercase)]
#[schema(rename_all = "lowercase")]
pub enum BrowserStatus {
    #[default]
    Active,
    Deleted,
    All,
}

/// Filters and paging of the list of browsers.
#[derive(Debug, Clone, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListBrowsers {
    /// Status of the browsers: `active` (default), `deleted` or `all`.
    #[param(value_type = Option<BrowserStatus>, inline, example = "active")]
    pub status: BrowserStatus,
    /// Text to search for in id and name, case-insensitive. At most 255 characters.
    #[param(value_type = Option<String>, example = "checkout")]
    pub query: Option<SearchText>,
    /// Tags that a browser must have: `tags[key]=value`, up to 50.
    #[param(value_type = Option<BTreeMap<String, String>>, style = DeepObject, explode, example = json!({"team": "qa"}))]
    pub tags: BTreeMap<String, String>,
    #[param(ignore)]
    pub page: Page,
}

/// The status filter for a lookup by id or name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct GetBrowser {
    /// Status of the browsers: `active` (default), `deleted` or `all`.
    #[deserr(default)]
    #[param(value_type = Option<BrowserStatus>, inline, example = "active")]
    pub status: BrowserStatus,
}

/// The idle timeout of a browser: 10–259200 s, 60 s by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleTimeout(u32);

impl IdleTimeout {
    pub const MIN: u32 = 10;
    pub const MAX: u32 = 259_200;

    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl Default for IdleTimeout {
    fn default() -> Self {
        IdleTimeout(60)
    }
}

impl<E: DeserializeError> Deserr<E> for IdleTimeout {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::whole_number(value, location, Self::MIN..=Self::MAX).map(IdleTimeout)
    }
}

/// The name of a browser, which must not have the form of a browser id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserName(Name);

impl BrowserName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl From<BrowserName> for String {
    fn from(name: BrowserName) -> String {
        name.0.into()
    }
}

impl<E: DeserializeError> Deserr<E> for BrowserName {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| {
            if text.parse::<BrowserId>().is_ok() {
                return Err("must not have the form of a browser id".to_owned());
            }
            Name::parse(text).map(BrowserName)
        })
    }
}

/// The tags of a browser: at most 50.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tags(BTreeMap<String, String>);

impl Tags {
    pub const MAX: usize = 50;
    /// Characters of a key (at least one) and of a value.
    pub const MAX_KEY: usize = 128;
    pub const MAX_VALUE: usize = 256;

    #[must_use]
    pub fn into_inner(self) -> BTreeMap<String, String> {
        self.0
    }
}

impl<E: DeserializeError> Deserr<E> for Tags {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        // Not delegated to deserr: its maps silently drop entries of the wrong kind.
        let entries = match value {
            Value::Map(entries) => entries,
            actual => {
                let accepted = &[ValueKind::Map];
                let kind = ErrorKind::IncorrectValueKind { actual, accepted };
                return Err(take_cf_content(E::error(None, kind, location)));
            }
        };
        if entries.len() > Tags::MAX {
            let message = format!("must have at most {} entries", Tags::MAX);
            return Err(field::add(None, message, location));
        }
        let (mut tags, mut errors) = (BTreeMap::new(), None);
        for (key, value) in entries.into_iter() {
            let location = location.push_key(&key);
            match Deserr::<E>::deserialize_from_value(value.into_value(), location) {
                Ok(value) => {
                    tags.insert(key, value);
                }
                Err(other) => errors = Some(take_cf_content(E::merge(errors, other, location))),
            }
        }
        let errors = check_tags(&tags, errors, |key| location.push_key(key));
        errors.map_or(Ok(Tags(tags)), Err)
    }
}

fn check_tags<'a, E: DeserializeError>(
    tags: &'a BTreeMap<String, String>,
    mut errors: Option<E>,
    location: impl Fn(&'a str) -> ValuePointerRef<'a>,
) -> Option<E> {
    for (key, value) in tags {
        if !(1..=Tags::MAX_KEY).contains(&key.chars().count()) {
            let message = format!("key must have 1 to {} characters", Tags::MAX_KEY);
            errors = Some(field::add(errors, message, location(key)));
        }
        if value.chars().count() > Tags::MAX_VALUE {
            let message = format!("must have at most {} characters", Tags::MAX_VALUE);
            errors = Some(field::add(errors, message, location(key)));
        }
        if key.contains(NUL) || value.contains(NUL) {
            errors = Some(field::add(errors, NO_NUL.to_owned(), location(key)));
        }
    }
    errors
}

/// The character that PostgreSQL does not store.
const NUL: char = '\0';
const NO_NUL: &str = "must not contain the character NUL";

#[derive(Deserr)]
struct PlainListBrowsers {
    #[deserr(default)]
    status: BrowserStatus,
    #[deserr(default)]
    query: Option<SearchText>,
    #[deserr(default)]
    limit: super::paging::Limit,
    #[deserr(default)]
    offset: super::paging::Offset,
}

impl<E: DeserializeError> Deserr<E> for ListBrowsers {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let parameters: BTreeMap<String, String> =
            Deserr::<E>::deserialize_from_value(value, location)?;
        let mut tags = BTreeMap::new();
        let mut others = serde_json::Map::new();
        for (name, value) in parameters {
            match name
                .strip_prefix("tags[")
                .and_then(|rest| rest.strip_suffix(']'))
            {
                Some(key) => {
                    tags.insert(key.to_owned(), value);
                }
                None => {
                    others.insert(name, value.into());
                }
            }
        }
        let mut errors = None;
        if tags.len() > Tags::MAX {
            let message = format!("must have at most {} entries", Tags::MAX);
            errors = Some(field::add(errors, message, location.push_key("tags")));
        }
        let tags_location = location.push_key("tags");
        errors = check_tags(&tags, errors, |key| ValuePointerRef::Key {
            key,
            prev: &tags_location,
        });
        let others = serde_json::Value::Object(others).into_value();
        match (
            PlainListBrowsers::deserialize_from_value(others, location),
            errors,
        ) {
            (Ok(plain), None) => Ok(ListBrowsers {
                status: plain.status,
                query: plain.query,
                tags,
                page: Page {
                    limit: plain.limit,
                    offset: plain.offset,
                },
            }),
            (Ok(_), Some(errors)) | (Err(errors), None) => Err(errors),
            (Err(other), errors) => Err(take_cf_content(E::merge(errors, other, location))),
        }
    }
}

#[cfg(test)]
mod tests {
    use deserr::errors::JsonError;
    use serde_json::json;

    use super::*;

    fn tags(value: serde_json::Value) -> Result<Tags, JsonError> {
        deserr::deserialize(value)
    }

    #[test]
    fn tag_of_the_wrong_kind_is_rejected() {
        assert!(tags(json!({"a": "b", "c": 1})).is_err());
        assert_eq!(
            tags(json!({"a": "b"})).unwrap().into_inner(),
            BTreeMap::from([("a".to_owned(), "b".to_owned())])
        );
    }

    #[test]
    fn tags_are_bounded() {
        let many = |n: usize| (0..n).map(|i| (i.to_string(), json!(""))).collect();
        assert!(tags(serde_json::Value::Object(many(50))).is_ok());
        assert!(tags(serde_json::Value::Object(many(51))).is_err());
        assert!(tags(json!({"k".repeat(128): "v".repeat(256)})).is_ok());
        assert!(tags(json!({"k".repeat(129): ""})).is_err());
        assert!(tags(json!({"": ""})).is_err());
        assert!(tags(json!({"k": "v".repeat(257)})).is_err());
        assert!(tags(json!({"k\0": "v"})).is_err());
        assert!(tags(json!({"k": "\0"})).is_err());
    }
}
