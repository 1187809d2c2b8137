//! Values of requests about auth connections.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use url::Url;
use utoipa::ToSchema;

use crate::api::{
    credentials::CredentialDomain,
    field::{self, Fields, WholeNumber},
    fill::ReferenceText,
};

/// The credential of a connection: `name`, or `provider` with either `path` or `auto`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConnectionCredentialFields {
    /// Credential of the project, by its name or its id. Responses have the name.
    #[schema(min_length = 1, max_length = 255)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Credential provider, by its name or its id. Responses have the name.
    #[schema(min_length = 1, max_length = 255)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Path `Vault/Item` of an item of the provider, of names or ids.
    #[schema(min_length = 1, max_length = 1024)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Use the item of the provider with a URL of the connection's domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto: Option<bool>,
}

/// The credential of a connection in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionCredential {
    /// A credential of the project, by its name or its id.
    Named(ReferenceText),
    /// An item of a provider.
    Item {
        /// The provider, by its name or its id.
        provider: ReferenceText,
        /// The path `Vault/Item`, of names or ids.
        path: ReferenceText,
    },
    /// The item of a provider for the domain of the connection.
    ProviderMatch {
        /// The provider, by its name or its id.
        provider: ReferenceText,
    },
}

impl<E: DeserializeError> Deserr<E> for ConnectionCredential {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::new(value, location)?;
        let name = fields.try_optional::<ReferenceText>("name");
        let provider = fields.try_optional::<ReferenceText>("provider");
        let path = fields.try_optional::<ReferenceText>("path");
        let auto = fields.try_optional::<bool>("auto");
        let (Ok(name), Ok(provider), Ok(path), Ok(auto)) = (name, provider, path, auto) else {
            return fields.finish(None);
        };
        let credential = match (name, provider, path, auto.unwrap_or_default()) {
            (Some(name), None, None, false) => Ok(ConnectionCredential::Named(name)),
            (None, Some(provider), Some(path), false) => {
                Ok(ConnectionCredential::Item { provider, path })
            }
            (None, Some(provider), None, true) => {
                Ok(ConnectionCredential::ProviderMatch { provider })
            }
            (Some(_), ..) => Err(("name", "must not be combined with a provider")),
            (None, Some(_), Some(_), true) => Err(("auto", "must not be combined with path")),
            (None, Some(_), None, false) => Err(("path", "path or auto is required with provider")),
            (None, None, Some(_), _) | (None, None, None, true) => {
                Err(("provider", "is required with path or auto"))
            }
            (None, None, None, false) => Err(("name", "name or provider is required")),
        };
        let credential = credential.map_err(|(key, rule)| fields.reject(key, rule));
        fields.finish(credential.ok())
    }
}

/// A change of a value that can be removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FieldChange<T> {
    #[default]
    Unchanged,
    Remove,
    Set(T),
}

/// Reads a change. Null removes the value.
fn read_change<T: Deserr<E>, V: IntoValue, E: DeserializeError>(
    value: Value<V>,
    location: ValuePointerRef,
) -> Result<FieldChange<T>, E> {
    match value {
        Value::Null => Ok(FieldChange::Remove),
        value => T::deserialize_from_value(value, location).map(FieldChange::Set),
    }
}

impl<E: DeserializeError> Deserr<E> for FieldChange<ConnectionCredential> {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        read_change(value, location)
    }
}

impl<E: DeserializeError> Deserr<E> for FieldChange<AllowedDomains> {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        read_change(value, location)
    }
}

impl<E: DeserializeError> Deserr<E> for FieldChange<LoginUrl> {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        match value {
            // Some clients remove it so.
            Value::String(text) if text.is_empty() => Ok(FieldChange::Remove),
            value => read_change(value, location),
        }
    }
}

/// The URL of the page with which a login begins: absolute, without user information.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginUrl(pub Url);

impl LoginUrl {
    /// The most bytes, percent-encoded.
    pub const MAX_BYTES: usize = 4096;

    /// Parses an absolute URL.
    ///
    /// # Errors
    /// Returns the rule that the text breaks.
    pub fn parse(text: &str) -> Result<LoginUrl, String> {
        let url = Url::parse(text).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or("must be an absolute https URL")?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must have no user name and no password".to_owned());
        }
        if url.as_str().len() > Self::MAX_BYTES {
            return Err(format!("must have at most {} bytes", Self::MAX_BYTES));
        }
        Ok(LoginUrl(url))
    }
}

impl<E: DeserializeError> Deserr<E> for LoginUrl {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| LoginUrl::parse(&text))
    }
}

/// Up to 32 domains, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedDomains(pub Vec<CredentialDomain>);

impl AllowedDomains {
    pub const MAX: usize = 32;
}

impl<E: DeserializeError> Deserr<E> for AllowedDomains {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let given: Vec<CredentialDomain> = Deserr::<E>::deserialize_from_value(value, location)?;
        if given.len() > Self::MAX {
            let message = format!("must have at most {} elements", Self::MAX);
            return Err(field::add(None, message, location));
        }
        let mut domains = Vec::with_capacity(given.len());
        for domain in given {
            if !domains.contains(&domain) {
                domains.push(domain);
            }
        }
        Ok(AllowedDomains(domains))
    }
}

/// The shortest interval of health checks, in seconds.
pub const MIN_HEALTH_CHECK_INTERVAL: u32 = 60;
/// Seconds between two health checks.
pub type HealthCheckInterval = WholeNumber<MIN_HEALTH_CHECK_INTERVAL, 86_400>;

#[cfg(test)]
mod tests {
    use deserr::errors::JsonError;
    use serde_json::{Value as Json, json};

    use super::*;

    fn parse<T: Deserr<JsonError>>(value: Json) -> Option<T> {
        deserr::deserialize::<T, _, JsonError>(value).ok()
    }

    #[test]
    fn credential_is_of_the_project_or_of_a_provider() {
        for (value, is_valid) in [
            (json!({"name": "shop"}), true),
            (json!({"name": "shop", "auto": false, "path": null}), true),
            (json!({"provider": "vault", "path": "Team/Shop"}), true),
            (json!({"provider": "vault", "auto": true}), true),
            (json!({}), false),
            (json!({"name": "shop", "provider": "vault"}), false),
            (json!({"name": "shop", "auto": true}), false),
            (json!({"provider": "vault"}), false),
            (json!({"provider": "vault", "auto": false}), false),
            (
                json!({"provider": "vault", "auto": true, "path": "a/b"}),
                false,
            ),
            (json!({"path": "Team/Shop"}), false),
            (json!({"auto": true}), false),
            (json!({"name": ""}), false),
            (json!("shop"), false),
        ] {
            let parsed = parse::<ConnectionCredential>(value.clone());
            assert_eq!(parsed.is_some(), is_valid, "{value}");
        }
    }

    #[test]
    fn null_and_empty_text_remove_a_login_url() {
        for removed in [json!(null), json!("")] {
            let change = parse::<FieldChange<LoginUrl>>(removed);
            assert_eq!(change, Some(FieldChange::Remove));
        }
        let set = parse::<FieldChange<LoginUrl>>(json!("https://example.com/login#/a"));
        let url = LoginUrl::parse("https://example.com/login#/a").unwrap();
        assert_eq!(set, Some(FieldChange::Set(url)));
    }

    #[test]
    fn login_url_is_absolute_and_has_no_password() {
        let base = "https://example.com/";
        let longest = format!("{base}{}", "x".repeat(LoginUrl::MAX_BYTES - base.len()));
        for good in [base, "http://localhost:3000/a?b", &longest] {
            assert!(LoginUrl::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "example.com",
            "//example.com",
            "ftp://example.com",
            "javascript:alert(1)",
            "data:text/html,x",
            "https://user@example.com",
            "https://:password@example.com",
            "https://",
            &format!("{longest}x"),
        ] {
            assert!(LoginUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn allowed_domain_is_in_the_list_once() {
        let domains = parse::<AllowedDomains>(json!(["b.example", "A.example.", "a.example"]));
        let domains = domains.unwrap().0;
        let names: Vec<&str> = domains.iter().map(CredentialDomain::as_str).collect();
        assert_eq!(names, ["b.example", "a.example"]);
        for bad in [
            json!(["com"]),
            json!(["*.example.com"]),
            json!(["127.0.0.1"]),
            json!("example.com"),
            json!(vec!["example.com"; 33]),
        ] {
            assert_eq!(parse::<AllowedDomains>(bad.clone()), None, "{bad}");
        }
    }
}
