//! Values that are written into the fields of a page.

use std::collections::BTreeMap;

use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, Map, Value, ValueKind, ValuePointerRef,
    take_cf_content,
};
use serde::{Deserialize, Serialize};
use url::Host;
use utoipa::ToSchema;

use super::{field, secret_text::SecretText};

/// The names of values that are a user name, an email address or a phone number, the preferred ones
/// first.
pub const IDENTIFIER_NAMES: [&str; 7] = [
    "username",
    "login",
    "identifier",
    "user",
    "email",
    "phone",
    "tel",
];

/// A value of a field: 1–4096 bytes.
pub type FillValue = SecretText<1, 4096>;

/// A request of control to write values into the page in front. It cannot be printed.
#[derive(Deserr, ToSchema)]
pub struct AgentFillRequest {
    /// Host name of the values, such as `example.com`. They are written only into frames of its
    /// registrable domain, and of `allowed_domains`.
    #[schema(value_type = String, min_length = 1, max_length = 253)]
    pub domain: FillDomain,
    /// Values by the names of their fields: 1–33, of 1–4096 bytes each, with names of 1–255
    /// characters. `username` (or `login`, `identifier`, `user`), `email`, `phone` (or `tel`),
    /// `password` and `code` (or `totp`, `otp`) are found by their meaning, others by a selector or
    /// by the name, id or label of the field.
    #[schema(value_type = BTreeMap<String, String>)]
    pub values: FillValues,
    /// Fields to fill, of which `values` has a value each; by default all of `values`. 1–32.
    #[deserr(default)]
    #[schema(value_type = Option<Vec<FillField>>, min_items = 1, max_items = 32)]
    pub fields: Option<FillFields>,
    /// Submit the form in the same step, if every field that was found has its value.
    #[deserr(default)]
    #[schema(default = false)]
    pub submit: Option<bool>,
    /// Further host names whose frames may be filled, with their subdomains. Up to 32.
    #[deserr(default)]
    #[schema(value_type = Option<Vec<String>>, max_items = 32)]
    pub allowed_domains: Option<FillDomains>,
    /// Find the fields and write nothing. A field that would be filled is `found`.
    #[deserr(default)]
    #[schema(default = false)]
    pub dry_run: Option<bool>,
    /// Permit frames with `http`. Those of `localhost` and of loopback addresses always are.
    #[deserr(default)]
    #[schema(default = false)]
    pub allow_http: Option<bool>,
}

/// A field to fill.
#[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
pub struct FillField {
    /// Name of a value.
    #[schema(value_type = String, min_length = 1, max_length = 255)]
    pub name: FillFieldName,
    /// CSS selector of the field, which has to match one field in one frame. By default the field
    /// is found by its meaning.
    #[schema(value_type = Option<String>, min_length = 1, max_length = 1024)]
    pub selector: Option<FillSelector>,
}

/// The outcomes of a fill. No value is ever in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FillResponse {
    pub fields: Vec<FilledField>,
    /// Whether the form was submitted. Where a field is `unknown`, it may have been. A form that
    /// would put the values into an address is not.
    pub submitted: bool,
    /// URL of the page in front when the fields were looked for, without query, fragment and user
    /// information.
    pub url: String,
}

/// The page in front.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FrontPageAddress {
    /// URL without query, fragment and user information.
    pub url: String,
}

/// The outcome of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FilledField {
    pub name: String,
    pub outcome: FillOutcome,
}

/// `found`, only of agents: the field was found, and not written because of `dry_run`. `filled`:
/// the field has the value. `not_found`: no field matches in a frame that is permitted.
/// `ambiguous`: several fields match equally well since an earlier field was filled.
/// `refused_origin`: a field matches, but the target of its form is of another origin. `hidden`:
/// only fields match that a user does not see. `unknown`: a value was written, but the page changed
/// it or did not respond. Only fields that are `filled` or `unknown` were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FillOutcome {
    Found,
    Filled,
    NotFound,
    Ambiguous,
    RefusedOrigin,
    Hidden,
    Unknown,
}

/// The name of a value and of its field: 1–255 characters, none of them a control character.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FillFieldName(String);

impl FillFieldName {
    pub const MAX: usize = 255;

    /// Parses a name.
    ///
    /// # Errors
    /// Returns the rule for names.
    pub fn parse(text: String) -> Result<Self, String> {
        let count = text.chars().count();
        if !(1..=Self::MAX).contains(&count) || text.chars().any(char::is_control) {
            return Err(format!(
                "must have 1 to {} characters, none of them a control character",
                Self::MAX
            ));
        }
        Ok(Self(text))
    }

    /// Returns the name of a field that has no other.
    #[must_use]
    pub fn numbered(number: usize) -> Self {
        Self(format!("field-{number}"))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A CSS selector of 1–1024 characters. Only the browser knows whether it is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillSelector(String);

impl FillSelector {
    pub const MAX: usize = 1024;

    /// Parses a selector.
    ///
    /// # Errors
    /// Returns the rule for its length.
    pub fn parse(text: String) -> Result<Self, String> {
        if text.trim().is_empty() || text.chars().count() > Self::MAX {
            return Err(format!("must have 1 to {} characters", Self::MAX));
        }
        Ok(Self(text))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A host name or IP address, in lower case and without a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillDomain(Host<String>);

impl FillDomain {
    pub const MAX: usize = 253;

    /// Parses a host name or an IP address. An IPv6 address has brackets.
    ///
    /// # Errors
    /// Returns the rule for host names.
    pub fn parse(text: &str) -> Result<Self, String> {
        const RULE: &str = "must be a host name, such as example.com, or an IP address";
        let is_plain = |host: &Host<String>| match host {
            Host::Domain(name) => !name.ends_with('.') && !name.contains(['*', '_']),
            Host::Ipv4(_) | Host::Ipv6(_) => true,
        };
        if text.is_empty() || text.len() > Self::MAX {
            return Err(format!("must have 1 to {} bytes", Self::MAX));
        }
        let host = Host::parse(text).ok().filter(is_plain);
        host.map(Self).ok_or_else(|| RULE.to_owned())
    }

    #[must_use]
    pub fn host(&self) -> &Host<String> {
        &self.0
    }
}

/// Up to 32 host names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FillDomains(Vec<FillDomain>);

impl FillDomains {
    pub const MAX: usize = 32;

    #[must_use]
    pub fn as_slice(&self) -> &[FillDomain] {
        &self.0
    }
}

/// The fields to fill: 1–32, each named once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillFields(Vec<FillField>);

impl FillFields {
    pub const MAX: usize = 32;

    /// Returns the first 32 fields, unless there is none.
    #[must_use]
    pub fn new(mut fields: Vec<FillField>) -> Option<Self> {
        fields.truncate(Self::MAX);
        (!fields.is_empty()).then_some(Self(fields))
    }

    #[must_use]
    pub fn as_slice(&self) -> &[FillField] {
        &self.0
    }
}

/// The values of fields by name: 1–33.
#[derive(Clone)]
pub struct FillValues(BTreeMap<FillFieldName, FillValue>);

impl FillValues {
    /// The most values: those of a credential, and a one-time code.
    pub const MAX: usize = 33;

    #[must_use]
    pub fn get(&self, name: &FillFieldName) -> Option<&FillValue> {
        self.0.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&FillFieldName, &FillValue)> {
        self.0.iter()
    }
}

impl<E: DeserializeError> Deserr<E> for FillFieldName {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, Self::parse)
    }
}

impl<E: DeserializeError> Deserr<E> for FillSelector {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, Self::parse)
    }
}

impl<E: DeserializeError> Deserr<E> for FillDomain {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| Self::parse(&text))
    }
}

impl<E: DeserializeError> Deserr<E> for FillDomains {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let domains: Vec<FillDomain> = Deserr::<E>::deserialize_from_value(value, location)?;
        if domains.len() > Self::MAX {
            let message = format!("must have at most {} elements", Self::MAX);
            return Err(field::add(None, message, location));
        }
        Ok(Self(domains))
    }
}

impl<E: DeserializeError> Deserr<E> for FillField {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = field::Fields::<_, E>::new(value, location)?;
        let name = fields.required("name");
        let selector = fields.optional("selector");
        fields.finish(name.map(|name| Self { name, selector }))
    }
}

impl<E: DeserializeError> Deserr<E> for FillFields {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let fields: Vec<FillField> = Deserr::<E>::deserialize_from_value(value, location)?;
        if !(1..=Self::MAX).contains(&fields.len()) {
            let message = format!("must have 1 to {} elements", Self::MAX);
            return Err(field::add(None, message, location));
        }
        for (index, field) in fields.iter().enumerate() {
            if fields[..index].iter().any(|other| other.name == field.name) {
                let location = location.push_index(index);
                let location = location.push_key("name");
                return Err(field::add(None, "names a field again", location));
            }
        }
        Ok(Self(fields))
    }
}

impl<E: DeserializeError> Deserr<E> for FillValues {
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
        if !(1..=Self::MAX).contains(&entries.len()) {
            let message = format!("must have 1 to {} entries", Self::MAX);
            return Err(field::add(None, message, location));
        }
        let (mut values, mut errors) = (BTreeMap::new(), None);
        for (key, value) in entries.into_iter() {
            let location = location.push_key(&key);
            let value: Result<FillValue, E> =
                Deserr::<E>::deserialize_from_value(value.into_value(), location);
            match (FillFieldName::parse(key.clone()), value) {
                (Ok(name), Ok(value)) => {
                    values.insert(name, value);
                }
                (Err(message), _) => {
                    errors = Some(field::add(errors, format!("name {message}"), location));
                }
                (Ok(_), Err(other)) => {
                    errors = Some(take_cf_content(E::merge(errors, other, location)));
                }
            }
        }
        errors.map_or(Ok(Self(values)), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_is_a_host_without_port_and_scheme() {
        for (text, host) in [
            ("example.com", "example.com"),
            ("EXAMPLE.com", "example.com"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("localhost", "localhost"),
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]", "[::1]"),
        ] {
            let domain = FillDomain::parse(text).unwrap();
            assert_eq!(domain.host().to_string(), host, "{text}");
        }
        for bad in [
            "",
            "https://example.com",
            "example.com:443",
            "example.com/",
            "*.example.com",
            "a b",
            "user@example.com",
            "example.com.",
            &"a.".repeat(200),
        ] {
            assert!(FillDomain::parse(bad).is_err(), "{bad}");
        }
    }
}
