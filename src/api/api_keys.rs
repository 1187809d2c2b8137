//! API keys.

use chrono::{DateTime, TimeDelta, Utc};
use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    field::{self, Fields, Flag, Unsupported},
    ids::{KeyId, ProjectId},
    name::ApiKeyName,
    paging::{Limit, Offset, Page, SearchText},
    time::{FutureTime, Timestamp},
};

/// An API key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiKey {
    pub id: KeyId,
    pub name: String,
    /// The public part of the key, which identifies it.
    pub masked_key: String,
    /// The project that the key is limited to. Absent if the key is valid for every project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// The name of that project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_name: Option<String>,
    pub created_at: Timestamp,
    /// The key that created this one. Absent if it was created on the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<ApiKeyCreator>,
    pub updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The time when the key, or its project, was deleted. Absent until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
}

/// The API key that created another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiKeyCreator {
    pub id: KeyId,
    /// The name that it had then.
    pub name: String,
}

/// A new or rotated API key with its secret, which is shown only once.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ApiKeyWithSecret {
    #[serde(flatten)]
    pub record: ApiKey,
    /// The secret key. Send it as `Authorization: Bearer <key>`.
    pub key: String,
}

/// The properties of a new API key.
#[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
pub struct CreateApiKey {
    /// Name of 1–255 characters, none of them a control character. Names are not unique.
    #[schema(value_type = String, min_length = 1, max_length = 255)]
    pub name: ApiKeyName,
    /// Limits the key to one project. By default the key is valid for every project.
    pub project_id: Option<ProjectId>,
    /// Time of expiry, in the future. Mutually exclusive with `days_to_expire`. By default the key
    /// does not expire.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<DateTime<Utc>>,
    /// Days until the key expires, 1–3650. Mutually exclusive with `expires_at`.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 3650)]
    pub days_to_expire: Option<Days>,
    /// Not supported by this build.
    #[schema(value_type = Option<Object>)]
    pub policy: Unsupported,
}

/// A change of an API key.
#[derive(Debug, Clone, PartialEq, Eq, Deserr, ToSchema)]
pub struct UpdateApiKey {
    /// New name of 1–255 characters, none of them a control character.
    #[schema(value_type = String, min_length = 1, max_length = 255)]
    pub name: ApiKeyName,
}

/// The options of the rotation of an API key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, ToSchema)]
pub struct RotateApiKey {
    /// Days until the new key expires, 1–3650. By default it expires when the old key would have.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 3650)]
    pub days_to_expire: Option<Days>,
    /// Days for which the old key remains valid, 0–3650, unless it expires earlier. With 0 it ends
    /// at once.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 3650, default = 7)]
    pub expire_in_days: Option<GraceDays>,
}

/// Filters, order and paging of the list of API keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListApiKeys {
    /// Exact name of the key. At most 255 characters.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "ci")]
    pub name: Option<SearchText>,
    /// Text to search for in the id, the masked key, and the names of the key, of its creator and
    /// of its project, case-insensitive. At most 255 characters.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "ci")]
    pub query: Option<SearchText>,
    /// Status of the keys: `active` (not deleted, default), `deleted` or `all`.
    #[deserr(default)]
    #[param(value_type = Option<ApiKeyStatus>, inline, example = "active")]
    pub status: Option<ApiKeyStatus>,
    /// The same as the status `all`, if there is no `status`.
    #[deserr(default)]
    #[param(value_type = Option<bool>)]
    pub include_deleted: Flag,
    /// Field to sort by: `created_at` (default), `name` or `expires_at`. Keys that do not expire
    /// count as the last to expire.
    #[deserr(default)]
    #[param(value_type = Option<ApiKeySortField>, inline, example = "created_at")]
    pub sort_by: ApiKeySortField,
    /// Direction to sort in: `desc` (default) or `asc`.
    #[deserr(default)]
    #[param(value_type = Option<SortDirection>, inline, example = "desc")]
    pub sort_direction: SortDirection,
    #[deserr(default)]
    #[param(ignore)]
    pub limit: Limit,
    #[deserr(default)]
    #[param(ignore)]
    pub offset: Offset,
}

impl ListApiKeys {
    #[must_use]
    pub fn page(&self) -> Page {
        Page {
            limit: self.limit,
            offset: self.offset,
        }
    }
}

/// The status of an API key, as a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserr, ToSchema)]
#[deserr(rename_all = lowercase)]
#[schema(rename_all = "lowercase")]
pub enum ApiKeyStatus {
    Active,
    Deleted,
    All,
}

/// The field by which API keys are sorted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum ApiKeySortField {
    #[default]
    #[deserr(rename = "created_at")]
    CreatedAt,
    #[deserr(rename = "name")]
    Name,
    #[deserr(rename = "expires_at")]
    ExpiresAt,
}

/// The direction in which a list is sorted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, ToSchema)]
#[deserr(rename_all = lowercase)]
#[schema(rename_all = "lowercase")]
pub enum SortDirection {
    Asc,
    #[default]
    Desc,
}

impl CreateApiKey {
    /// Returns the time of expiry; `None` if the key does not expire.
    #[must_use]
    pub fn expiry(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.expires_at
            .or_else(|| self.days_to_expire.map(|days| days.after(now)))
    }
}

/// A number of days, 1–3650.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Days(u32);

impl Days {
    pub const MAX: u32 = 3650;

    #[must_use]
    pub fn after(self, now: DateTime<Utc>) -> DateTime<Utc> {
        now + TimeDelta::days(self.0.into())
    }
}

impl std::str::FromStr for Days {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(days @ 1..=Self::MAX) => Ok(Days(days)),
            _ => Err(format!("must be a whole number from 1 to {}", Self::MAX)),
        }
    }
}

/// A number of days for which a rotated key remains valid, 0–3650, 7 by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraceDays(u32);

impl GraceDays {
    #[must_use]
    pub fn period(self) -> TimeDelta {
        TimeDelta::days(self.0.into())
    }
}

impl Default for GraceDays {
    fn default() -> Self {
        GraceDays(7)
    }
}

struct ProjectField(ProjectId);

impl<E: DeserializeError> Deserr<E> for ApiKeyName {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, ApiKeyName::parse)
    }
}

impl<E: DeserializeError> Deserr<E> for GraceDays {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::whole_number(value, location, 0..=Days::MAX).map(GraceDays)
    }
}

impl<E: DeserializeError> Deserr<E> for ProjectField {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| {
            let id = text.parse().map(ProjectField);
            id.map_err(|_| "must be a project id".to_owned())
        })
    }
}

impl<E: DeserializeError> Deserr<E> for Days {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::whole_number(value, location, 1..=Self::MAX).map(Days)
    }
}

impl<E: DeserializeError> Deserr<E> for CreateApiKey {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::<_, E>::new(value, location)?;
        let name = fields.required("name");
        let project_id: Option<ProjectField> = fields.optional("project_id");
        let expires_at: Option<FutureTime> = fields.optional("expires_at");
        let days_to_expire = fields.optional("days_to_expire");
        let policy = fields.optional("policy").unwrap_or_default();
        if expires_at.is_some() && days_to_expire.is_some() {
            fields.reject("days_to_expire", "must not be combined with expires_at");
        }
        fields.finish(name.map(|name| CreateApiKey {
            name,
            project_id: project_id.map(|field| field.0),
            expires_at: expires_at.map(|field| field.0),
            days_to_expire,
            policy,
        }))
    }
}
