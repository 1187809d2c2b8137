//! API keys.

use chrono::{DateTime, TimeDelta, Utc};
use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    field::{self, Fields, Unsupported},
    ids::{KeyId, ProjectId},
    name::Name,
    time::Timestamp,
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
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
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
    /// Name of 1–255 characters: `A-Z a-z 0-9 . _ -`.
    #[schema(value_type = String)]
    pub name: Name,
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

struct NameField(Name);
struct ProjectField(ProjectId);
struct FutureField(DateTime<Utc>);

impl<E: DeserializeError> Deserr<E> for NameField {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| Name::parse(text).map(NameField))
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

impl<E: DeserializeError> Deserr<E> for FutureField {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| {
            let time = DateTime::parse_from_rfc3339(&text)
                .map_err(|_| "must be an RFC 3339 time such as 2030-01-31T12:00:00Z".to_owned())?;
            if time <= Utc::now() {
                return Err("must be in the future".to_owned());
            }
            Ok(FutureField(time.to_utc()))
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
        let expires_at: Option<FutureField> = fields.optional("expires_at");
        let days_to_expire = fields.optional("days_to_expire");
        let policy = fields.optional("policy").unwrap_or_default();
        if expires_at.is_some() && days_to_expire.is_some() {
            fields.reject("days_to_expire", "must not be combined with expires_at");
        }
        fields.finish(name.map(|NameField(name)| CreateApiKey {
            name,
            project_id: project_id.map(|field| field.0),
            expires_at: expires_at.map(|field| field.0),
            days_to_expire,
            policy,
        }))
    }
}
