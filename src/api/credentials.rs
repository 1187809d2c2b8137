//! Credentials: what logs in to a site. Their secrets are never returned.

use std::collections::BTreeMap;

use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, Map, Value, ValueKind, ValuePointerRef,
    take_cf_content,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

pub use super::totp::{TotpAlgorithm, TotpDigits, TotpPeriod, TotpSecret, TotpSecretChange};
use super::{
    field,
    ids::CredentialId,
    name::Name,
    paging::{Limit, Offset, Page, SearchText},
    public_suffix::registrable_domain,
    secret_text::SecretText,
    time::Timestamp,
};

/// A credential, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Credential {
    pub id: CredentialId,
    pub name: String,
    /// The domain of the values. They may be entered in pages of its registrable domain:
    /// `www.example.com` and `example.com`, for `login.example.com`.
    pub domain: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub has_values: bool,
    /// The names of the values, sorted.
    pub value_keys: Vec<String>,
    pub has_totp_secret: bool,
    /// Present if there is a secret for one-time codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totp_algorithm: Option<TotpAlgorithm>,
    /// Digits of a code. Present if there is a secret for one-time codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totp_digits: Option<u32>,
    /// Seconds for which a code is valid. Present if there is a secret for one-time codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totp_period: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sso_provider: Option<String>,
    /// The current code, if the request has set the secret, to confirm an enrolment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totp_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totp_code_expires_at: Option<Timestamp>,
}

/// A one-time code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TotpCode {
    pub code: String,
    pub expires_at: Timestamp,
}

/// The properties of a new credential.
#[derive(Deserr, ToSchema)]
pub struct CreateCredential {
    /// Name of 1–255 characters (`A-Z a-z 0-9 . _ -`), unique among the project's credentials.
    #[schema(value_type = String, min_length = 1, max_length = 255)]
    pub name: CredentialName,
    /// Domain of the site, such as `example.com`. It never changes.
    #[schema(value_type = String, min_length = 1, max_length = 253)]
    pub domain: CredentialDomain,
    /// Values by their names, such as `username` and `password`: up to 32, each of 1–4096 bytes.
    #[deserr(default)]
    #[schema(value_type = BTreeMap<String, String>)]
    pub values: CredentialValues,
    /// Secret for one-time codes: Base32 of 16–128 characters, or an `otpauth://totp` URI.
    #[deserr(default)]
    #[schema(value_type = Option<String>)]
    pub totp_secret: Option<TotpSecretChange>,
    /// Hash function of the codes, by default that of the URI, or `SHA1`. Needs a secret.
    #[deserr(default)]
    pub totp_algorithm: Option<TotpAlgorithm>,
    /// Digits of a code, by default those of the URI, or 6. Needs a secret.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 6, maximum = 8)]
    pub totp_digits: Option<TotpDigits>,
    /// Seconds for which a code is valid, by default those of the URI, or 30. Needs a secret.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 10, maximum = 300)]
    pub totp_period: Option<TotpPeriod>,
    /// The provider with which the site is logged in to, such as `google`: up to 255 characters.
    /// Null and an empty text stand for none.
    #[deserr(default)]
    #[schema(value_type = Option<String>, max_length = 255)]
    pub sso_provider: SsoProviderChange,
}

/// Changes of a credential. Absent fields are not changed, and null changes nothing but
/// `sso_provider`.
#[derive(Deserr, ToSchema)]
pub struct UpdateCredential {
    /// New name of 1–255 characters (`A-Z a-z 0-9 . _ -`), unique among the project's credentials.
    #[deserr(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255)]
    pub name: Option<CredentialName>,
    /// Values to add or overwrite, each of 1–4096 bytes. There may be 32 in all.
    #[deserr(default)]
    #[schema(value_type = BTreeMap<String, String>)]
    pub values: CredentialValues,
    /// Names of values to remove, before `values` are added. Unknown names are ignored.
    #[deserr(default)]
    #[schema(value_type = Vec<String>)]
    pub remove_value_keys: ValueNames,
    /// New secret for one-time codes: Base32 of 16–128 characters, or an `otpauth://totp` URI. An
    /// empty text removes the secret.
    #[deserr(default)]
    #[schema(value_type = Option<String>)]
    pub totp_secret: Option<TotpSecretChange>,
    /// Hash function of the codes. Needs a secret.
    #[deserr(default)]
    pub totp_algorithm: Option<TotpAlgorithm>,
    /// Digits of a code. Needs a secret.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 6, maximum = 8)]
    pub totp_digits: Option<TotpDigits>,
    /// Seconds for which a code is valid. Needs a secret.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 10, maximum = 300)]
    pub totp_period: Option<TotpPeriod>,
    /// The provider with which the site is logged in to: up to 255 characters. Null and an empty
    /// text remove it.
    #[deserr(default)]
    #[schema(value_type = Option<String>, max_length = 255)]
    pub sso_provider: SsoProviderChange,
}

impl CreateCredential {
    /// Returns the request to create a credential with values only.
    #[must_use]
    pub fn of_values(
        name: CredentialName,
        domain: CredentialDomain,
        values: CredentialValues,
    ) -> Self {
        CreateCredential {
            name,
            domain,
            values,
            totp_secret: None,
            totp_algorithm: None,
            totp_digits: None,
            totp_period: None,
            sso_provider: SsoProviderChange::Unchanged,
        }
    }
}

impl UpdateCredential {
    /// Returns the request to add values, or to overwrite them.
    #[must_use]
    pub fn of_values(values: CredentialValues) -> Self {
        UpdateCredential {
            name: None,
            values,
            remove_value_keys: ValueNames::default(),
            totp_secret: None,
            totp_algorithm: None,
            totp_digits: None,
            totp_period: None,
            sso_provider: SsoProviderChange::Unchanged,
        }
    }
}

/// Filters and paging of the list of credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListCredentials {
    /// Exact domain of the credential.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "example.com")]
    pub domain: Option<CredentialDomain>,
    /// Exact name of the credential. At most 255 characters.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "shop-admin")]
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

impl ListCredentials {
    #[must_use]
    pub fn page(&self) -> Page {
        Page {
            limit: self.limit,
            offset: self.offset,
        }
    }
}

/// The name of a credential, which must not have the form of a credential id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialName(Name);

impl CredentialName {
    /// Parses a name.
    ///
    /// # Errors
    /// Returns the rule that the text breaks.
    pub fn parse(text: String) -> Result<CredentialName, String> {
        if text.parse::<CredentialId>().is_ok() {
            return Err("must not have the form of a credential id".to_owned());
        }
        Name::parse(text).map(CredentialName)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl<E: DeserializeError> Deserr<E> for CredentialName {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, CredentialName::parse)
    }
}

/// A domain that values may be entered in: lower case, in its ASCII form. It is no public suffix,
/// such as `com` or `github.io`, because that would be the domain of strangers, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialDomain(String);

impl CredentialDomain {
    /// The most bytes, that of the Domain Name System.
    const MAX: usize = 253;
    /// Always this machine, for sites in development.
    const LOCALHOST: &str = "localhost";

    /// Parses a domain.
    ///
    /// # Errors
    /// Returns the rule that the text breaks.
    pub fn parse(text: &str) -> Result<CredentialDomain, String> {
        let invalid = || "must be a domain, such as example.com".to_owned();
        if text.contains(['%', '[', ' ']) {
            return Err(invalid());
        }
        let host = url::Host::parse(text).map_err(|_| invalid())?;
        let url::Host::Domain(domain) = host else {
            return Err("must be a domain, not an IP address".to_owned());
        };
        let domain = domain.strip_suffix('.').unwrap_or(&domain);
        let is_label = |label: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            (1..=63).contains(&label.len()) && label.bytes().all(allowed)
        };
        if domain.len() > Self::MAX || !domain.split('.').all(is_label) {
            return Err(invalid());
        }
        if domain != Self::LOCALHOST && registrable_domain(domain).is_none() {
            return Err("must not be a public suffix".to_owned());
        }
        Ok(CredentialDomain(domain.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<E: DeserializeError> Deserr<E> for CredentialDomain {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| CredentialDomain::parse(&text))
    }
}

/// A secret value of 1–4096 bytes.
pub type CredentialValue = SecretText<1, 4096>;

/// Secret values by their names.
#[derive(Default)]
pub struct CredentialValues(pub BTreeMap<String, CredentialValue>);

impl CredentialValues {
    /// The most values of a credential.
    pub const MAX: usize = 32;
}

/// The rule for the name of a value: 1–255 characters, none of them a control character.
fn check_value_name(name: &str) -> Result<(), &'static str> {
    let length = name.chars().count();
    match (1..=255).contains(&length) && !name.chars().any(char::is_control) {
        true => Ok(()),
        false => Err("the name must have 1 to 255 characters, none of them a control character"),
    }
}

impl<E: DeserializeError> Deserr<E> for CredentialValues {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let entries = match value {
            Value::Null => return Ok(CredentialValues::default()),
            Value::Map(entries) => entries,
            actual => {
                let accepted = &[ValueKind::Map];
                let kind = ErrorKind::IncorrectValueKind { actual, accepted };
                return Err(take_cf_content(E::error(None, kind, location)));
            }
        };
        if entries.len() > CredentialValues::MAX {
            let message = format!("must have at most {} entries", CredentialValues::MAX);
            return Err(field::add(None, message, location));
        }
        let (mut values, mut errors) = (BTreeMap::new(), None);
        for (name, value) in entries.into_iter() {
            let location = location.push_key(&name);
            if let Err(rule) = check_value_name(&name) {
                errors = Some(field::add(errors, rule, location));
                continue;
            }
            match Deserr::<E>::deserialize_from_value(value.into_value(), location) {
                Ok(value) => {
                    values.insert(name, value);
                }
                Err(other) => errors = Some(take_cf_content(E::merge(errors, other, location))),
            }
        }
        errors.map_or(Ok(CredentialValues(values)), Err)
    }
}

/// Names of values: up to 32.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValueNames(pub Vec<String>);

impl<E: DeserializeError> Deserr<E> for ValueNames {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let names = Option::<Vec<String>>::deserialize_from_value(value, location)?;
        let names = names.unwrap_or_default();
        if names.len() > CredentialValues::MAX {
            let message = format!("must have at most {} entries", CredentialValues::MAX);
            return Err(field::add(None, message, location));
        }
        let invalid = names
            .iter()
            .position(|name| check_value_name(name).is_err());
        if let Some(index) = invalid {
            let message = "must have 1 to 255 characters, none of them a control character";
            return Err(field::add(None, message, location.push_index(index)));
        }
        Ok(ValueNames(names))
    }
}

/// A change of the provider with which a site is logged in to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SsoProviderChange {
    #[default]
    Unchanged,
    Remove,
    Set(String),
}

impl<E: DeserializeError> Deserr<E> for SsoProviderChange {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        if matches!(value, Value::Null) {
            return Ok(SsoProviderChange::Remove);
        }
        field::from_text(value, location, |text| {
            if text.is_empty() {
                return Ok(SsoProviderChange::Remove);
            }
            if text.chars().count() > 255 || text.chars().any(char::is_control) {
                let rule = "must have at most 255 characters, none of them a control character";
                return Err(rule.to_owned());
            }
            Ok(SsoProviderChange::Set(text))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_is_normalized() {
        for (text, domain) in [
            ("example.com", "example.com"),
            ("Example.COM.", "example.com"),
            ("www.example.co.uk", "www.example.co.uk"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("localhost", "localhost"),
            ("shop.test", "shop.test"),
        ] {
            let parsed = CredentialDomain::parse(text);
            assert_eq!(parsed, Ok(CredentialDomain(domain.to_owned())), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_domain_is_rejected() {
        for text in [
            "",
            ".",
            "com",
            "co.uk",
            "github.io",
            "127.0.0.1",
            "0x7f.1",
            "[::1]",
            "example.com:443",
            "https://example.com",
            "example.com/login",
            "user@example.com",
            "exa mple.com",
            "ex%61mple.com",
            "a..example.com",
            "xn--a.example",
            "a_b.example.com",
            &format!("{}.example.com", "a".repeat(64)),
            &format!("{}example.com", "a.".repeat(130)),
        ] {
            assert!(CredentialDomain::parse(text).is_err(), "{text}");
        }
    }
}
