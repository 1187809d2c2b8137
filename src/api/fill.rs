//! Filling a page of a browser with a credential.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use utoipa::ToSchema;

use super::{
    credential_fill::{FillDomains, FillField, FillFields},
    field::{self, Fields},
};

/// A request to fill the page in front of a browser. It names one source of the values.
#[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
pub struct FillCredentials {
    #[schema(inline, value_type = FillSourceFields)]
    pub source: FillSource,
    /// Fields to fill, by the names of the values, with a CSS selector each if they are not found
    /// by their meaning. By default all values, and a one-time code if the page has a field for it.
    /// 1–32.
    #[schema(value_type = Option<Vec<FillField>>, min_items = 1, max_items = 32)]
    pub fields: Option<FillFields>,
    /// Submit the form in the same step.
    #[schema(default = false)]
    pub submit: bool,
    /// Further host names whose pages may be filled, with their subdomains. Up to 32.
    #[schema(value_type = Option<Vec<String>>, max_items = 32)]
    pub allowed_domains: Option<FillDomains>,
}

/// The source of the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FillSource {
    /// A credential of the project, by its id or its name.
    Credential(ReferenceText),
    /// An item of a provider.
    Item {
        /// The provider, by its id or its name.
        provider: ReferenceText,
        /// The path `Vault/Item`, of names or ids.
        path: ReferenceText,
    },
    /// The credential of the project, or else the item of a provider, for the domain of the page.
    Page,
}

/// The fields that name a [`FillSource`].
#[derive(Debug, ToSchema)]
pub struct FillSourceFields {
    /// Credential of the project, by its id or its name.
    #[schema(min_length = 1, max_length = 1024)]
    pub credential: Option<String>,
    /// Credential provider with the item `path`, by its id or its name.
    #[schema(min_length = 1, max_length = 1024)]
    pub provider: Option<String>,
    /// Path `Vault/Item` of an item of the provider, of names or ids.
    #[schema(min_length = 1, max_length = 1024)]
    pub path: Option<String>,
    /// Use the credential of the project for the domain of the page, or else the item of the first
    /// provider that has one.
    pub auto: Option<bool>,
}

/// The name or id of a credential, a provider or an item: 1–1024 characters, none of them a control
/// character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceText(String);

impl ReferenceText {
    const MAX: usize = 1024;

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<E: DeserializeError> Deserr<E> for ReferenceText {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| {
            let count = text.chars().count();
            match (1..=Self::MAX).contains(&count) && !text.chars().any(char::is_control) {
                true => Ok(ReferenceText(text)),
                false => Err(format!(
                    "must have 1 to {} characters, none of them a control character",
                    Self::MAX
                )),
            }
        })
    }
}

impl<E: DeserializeError> Deserr<E> for FillCredentials {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::new(value, location)?;
        let source = read_source(&mut fields);
        let filled = fields.try_optional::<FillFields>("fields");
        let submit = fields.try_optional::<bool>("submit");
        let allowed_domains = fields.try_optional::<FillDomains>("allowed_domains");
        let request = match (source, filled, submit, allowed_domains) {
            (Some(source), Ok(fields), Ok(submit), Ok(allowed_domains)) => Some(FillCredentials {
                source,
                fields,
                submit: submit.unwrap_or_default(),
                allowed_domains,
            }),
            _ => None,
        };
        fields.finish(request)
    }
}

/// Reads the fields of the source. Returns `None`, and records an error, if they name none or
/// several.
fn read_source<M: deserr::Map, E: DeserializeError>(
    fields: &mut Fields<'_, M, E>,
) -> Option<FillSource> {
    let credential = fields.try_optional::<ReferenceText>("credential").ok()?;
    let provider = fields.try_optional::<ReferenceText>("provider").ok()?;
    let path = fields.try_optional::<ReferenceText>("path").ok()?;
    let auto = fields
        .try_optional::<bool>("auto")
        .ok()?
        .unwrap_or_default();
    match (credential, provider, path, auto) {
        (Some(credential), None, None, false) => Some(FillSource::Credential(credential)),
        (None, Some(provider), Some(path), false) => Some(FillSource::Item { provider, path }),
        (None, None, None, true) => Some(FillSource::Page),
        (None, Some(_), None, false) => {
            fields.reject("path", "is required with provider");
            None
        }
        (None, None, Some(_), false) => {
            fields.reject("provider", "is required with path");
            None
        }
        (None, None, None, false) => {
            fields.reject(
                "credential",
                "credential, provider with path, or auto is required",
            );
            None
        }
        (Some(_), ..) => {
            fields.reject("credential", "must not be combined with another source");
            None
        }
        (None, ..) => {
            fields.reject("auto", "must not be combined with another source");
            None
        }
    }
}
