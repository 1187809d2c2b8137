//! Profiles: stored user-data directories that browsers start with.

use std::collections::BTreeMap;

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    field::{self, Fields},
    ids::ProfileId,
    name::Name,
    paging::{Limit, Offset, Page, SearchText},
    time::Timestamp,
};

/// A profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Profile {
    pub id: ProfileId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub created_at: Timestamp,
    /// The time of the last change of the name or the content.
    pub updated_at: Timestamp,
    /// The time when a browser was last started with the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    /// Number of the current version. Absent before the first save.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Size of the current version's archive in bytes. Absent before the first save.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Why the last save failed. The versions before it are unchanged. Absent once a later save has
    /// succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_save_error: Option<SaveFailure>,
}

/// A save that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SaveFailure {
    pub message: String,
    pub failed_at: Timestamp,
}

/// The content of a profile's archive, as found when the stored archive was read again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArchiveContent {
    /// Number of cookies by their domain.
    pub cookies: BTreeMap<String, u64>,
    /// Origins with storage, such as local storage or IndexedDB.
    pub origins: Vec<String>,
    /// Parts that are not in the archive, or could not be inspected.
    pub skipped: Vec<String>,
}

/// The receipt of a save: the new version and what it contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProfileReceipt {
    pub profile_id: ProfileId,
    /// Number of the new version.
    pub version: u64,
    /// Size of the archive in bytes.
    pub size_bytes: u64,
    #[serde(flatten)]
    pub content: ArchiveContent,
}

/// A version of a profile. It never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProfileVersion {
    pub version: u64,
    /// Whether browsers start with this version.
    pub is_current: bool,
    pub created_at: Timestamp,
    /// Size of the archive in bytes.
    pub size_bytes: u64,
    /// SHA-256 of the archive in hexadecimal digits.
    pub sha256: String,
    /// Version of the Chromium that wrote the profile, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chromium_version: Option<String>,
    /// The version that this one repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<u64>,
    #[serde(flatten)]
    pub content: ArchiveContent,
}

/// The properties of a new profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserr, ToSchema)]
pub struct CreateProfile {
    /// Name of 1–255 characters (`A-Z a-z 0-9 . _ -`), unique among the project's profiles.
    #[deserr(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255)]
    pub name: Option<ProfileName>,
}

/// Changes of a profile. Absent and null fields are not changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserr, ToSchema)]
pub struct UpdateProfile {
    /// New name of 1–255 characters (`A-Z a-z 0-9 . _ -`), unique among the project's profiles.
    #[deserr(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255)]
    pub name: Option<ProfileName>,
}

/// Filters and paging of the list of profiles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListProfiles {
    /// Exact name of the profile. At most 255 characters.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "shop-login")]
    pub name: Option<SearchText>,
    /// Text to search for in id and name, case-insensitive. At most 255 characters.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "shop")]
    pub query: Option<SearchText>,
    #[deserr(default)]
    #[param(ignore)]
    pub limit: Limit,
    #[deserr(default)]
    #[param(ignore)]
    pub offset: Offset,
}

impl ListProfiles {
    #[must_use]
    pub fn page(&self) -> Page {
        Page {
            limit: self.limit,
            offset: self.offset,
        }
    }
}

/// The form of a downloaded archive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, ToSchema)]
pub enum ArchiveForm {
    /// As it is stored.
    #[default]
    #[deserr(rename = "tar.zst")]
    #[schema(rename = "tar.zst")]
    TarZst,
    /// Decompressed.
    #[deserr(rename = "tar")]
    #[schema(rename = "tar")]
    Tar,
}

/// Options of a download.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DownloadProfile {
    /// `tar.zst` (default) for the archive as it is stored, or `tar` to decompress it.
    #[deserr(default)]
    #[param(value_type = Option<ArchiveForm>, inline, example = "tar.zst")]
    pub format: ArchiveForm,
}

/// The name of a profile, which must not have the form of a profile id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct ProfileName(Name);

impl ProfileName {
    /// Parses a name.
    ///
    /// # Errors
    /// Returns the rule that the text breaks.
    pub fn parse(text: String) -> Result<ProfileName, String> {
        if text.parse::<ProfileId>().is_ok() {
            return Err("must not have the form of a profile id".to_owned());
        }
        Name::parse(text).map(ProfileName)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl From<ProfileName> for String {
    fn from(name: ProfileName) -> String {
        name.0.into()
    }
}

impl<E: DeserializeError> Deserr<E> for ProfileName {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, ProfileName::parse)
    }
}

/// A profile, by its id or its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum ProfileRef {
    Id(ProfileId),
    Name(ProfileName),
}

impl ProfileRef {
    /// Reads the fields `id_key` and `name`, of which there must be one. Returns `None`, and
    /// records an error, if that is not so.
    pub(super) fn read<M: deserr::Map, E: DeserializeError>(
        fields: &mut Fields<'_, M, E>,
        id_key: &str,
    ) -> Option<ProfileRef> {
        let id = fields.try_optional::<GivenProfileId>(id_key);
        let name = fields.try_optional::<ProfileName>("name");
        match (id.ok()?, name.ok()?) {
            (Some(id), None) => Some(ProfileRef::Id(id.0)),
            (None, Some(name)) => Some(ProfileRef::Name(name)),
            (None, None) => {
                fields.reject(id_key, format!("{id_key} or name is required"));
                None
            }
            (Some(_), Some(_)) => {
                fields.reject("name", format!("must not be combined with {id_key}"));
                None
            }
        }
    }
}

/// The id of a profile in a request.
struct GivenProfileId(ProfileId);

impl<E: DeserializeError> Deserr<E> for GivenProfileId {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| match text.parse() {
            Ok(id) => Ok(GivenProfileId(id)),
            Err(_) => Err("must be the id of a profile".to_owned()),
        })
    }
}

/// The profile to save a browser to: an existing one by its id or name, or a new one by its name.
#[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
pub struct SaveProfile {
    /// The profile to save to, by its `profile_id` or its `name`. With a name that no profile has,
    /// a profile is created.
    #[schema(inline, value_type = SaveProfileFields)]
    pub profile: ProfileRef,
}

/// The fields of [`SaveProfile`].
#[derive(Debug, ToSchema)]
pub struct SaveProfileFields {
    /// Id of the profile to save to.
    pub profile_id: Option<String>,
    /// Name of the profile to save to. It is created if no profile has the name.
    #[schema(min_length = 1, max_length = 255)]
    pub name: Option<String>,
}

impl<E: DeserializeError> Deserr<E> for SaveProfile {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::new(value, location)?;
        let profile = ProfileRef::read(&mut fields, "profile_id");
        fields.finish(profile.map(|profile| SaveProfile { profile }))
    }
}

/// The profile that a browser starts with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProfileSelection {
    pub profile: ProfileRef,
    pub save_changes: bool,
}

/// The fields of [`ProfileSelection`].
#[derive(Debug, ToSchema)]
pub struct ProfileSelectionFields {
    /// Id of the profile.
    pub id: Option<String>,
    /// Name of the profile, instead of its id.
    #[schema(min_length = 1, max_length = 255)]
    pub name: Option<String>,
    /// Save the profile when the browser ends. Only one browser at a time can do that for a
    /// profile.
    #[schema(default = false)]
    pub save_changes: Option<bool>,
}

impl<E: DeserializeError> Deserr<E> for ProfileSelection {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::new(value, location)?;
        let profile = ProfileRef::read(&mut fields, "id");
        let save_changes = fields.try_optional::<bool>("save_changes");
        let selection = profile.zip(save_changes.ok());
        fields.finish(selection.map(|(profile, save_changes)| ProfileSelection {
            profile,
            save_changes: save_changes.unwrap_or_default(),
        }))
    }
}

/// The profile of a browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrowserProfile {
    pub id: ProfileId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether the profile is saved when the browser ends.
    pub save_changes: bool,
}

#[cfg(test)]
mod tests {
    use deserr::errors::JsonError;
    use serde_json::json;

    use super::*;

    fn selection(value: serde_json::Value) -> Result<ProfileSelection, String> {
        deserr::deserialize(value).map_err(|error: JsonError| error.to_string())
    }

    #[test]
    fn profile_is_selected_by_id_or_name() {
        let id = ProfileId::generate();
        let found = selection(json!({"id": id, "save_changes": true})).unwrap();
        assert_eq!(found.profile, ProfileRef::Id(id.clone()));
        assert!(found.save_changes);
        let found = selection(json!({"name": "shop"})).unwrap();
        let name = ProfileName::parse("shop".to_owned()).unwrap();
        assert_eq!(found.profile, ProfileRef::Name(name));
        assert!(!found.save_changes);
        for bad in [
            json!({}),
            json!({"id": id, "name": "shop"}),
            json!({"id": "shop"}),
            json!({"name": id}),
            json!({"name": ""}),
            json!({"name": "a b"}),
            json!({"name": "shop", "save_changes": "yes"}),
            json!("shop"),
        ] {
            assert!(selection(bad.clone()).is_err(), "{bad}");
        }
    }
}
