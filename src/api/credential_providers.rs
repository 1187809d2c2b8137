//! Credential providers: password managers and vaults that hold credentials outside of Berth.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use url::Url;
use utoipa::{IntoParams, ToSchema};

use super::{
    field::{self, WholeNumber},
    ids::ProviderId,
    paging::{Limit, Offset, Page, SearchText},
    secret_text::SecretText,
    time::Timestamp,
};

/// The kind of a credential provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProviderType {
    /// A vault that speaks the KV-v2 HTTP API.
    Kv,
    /// A password manager that speaks the Connect REST API. `onepassword` is accepted, too.
    VendorPassword,
}

impl ProviderType {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ProviderType::Kv => "kv",
            ProviderType::VendorPassword => "vendorpassword",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<ProviderType> {
        let all = [ProviderType::Kv, ProviderType::VendorPassword];
        all.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl<E: DeserializeError> Deserr<E> for ProviderType {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| match text.as_str() {
            "onepassword" => Ok(ProviderType::VendorPassword),
            name => {
                ProviderType::parse(name).ok_or_else(|| "must be kv or vendorpassword".to_owned())
            }
        })
    }
}

/// A credential provider, without its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CredentialProvider {
    pub id: ProviderId,
    pub provider_type: ProviderType,
    pub name: String,
    pub enabled: bool,
    /// Providers with a lower number are asked first.
    pub priority: u32,
    pub base_url: String,
    /// Seconds for which a list of items is used again.
    pub cache_ttl_seconds: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Result of a test of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProviderTest {
    pub success: bool,
    /// Vaults that the token can read. Empty if the test failed.
    pub vaults: Vec<ProviderTestVault>,
    /// Why the test failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A vault of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProviderTestVault {
    pub id: String,
    pub name: String,
}

/// Items of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProviderItems {
    pub items: Vec<ProviderItem>,
}

/// An item of a provider, without its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProviderItem {
    pub id: String,
    /// `Vault/Item`, of the names.
    pub path: String,
    pub title: String,
    pub vault_id: String,
    pub vault_name: String,
    pub urls: Vec<String>,
}

/// A token of a provider: 1–8192 bytes.
pub type ProviderToken = SecretText<1, 8192>;
/// The lifetime of a list of items: 0–86400 seconds, of which 0 stands for none.
pub type CacheTtl = WholeNumber<0, 86_400>;
/// The priority of a provider: 0–1000000.
pub type ProviderPriority = WholeNumber<0, 1_000_000>;

/// The properties of a new credential provider.
#[derive(Deserr, ToSchema)]
pub struct CreateCredentialProvider {
    /// Name of 1–255 characters, none of them a control character, unique in the organization.
    /// Spaces around it are removed.
    #[schema(value_type = String, min_length = 1, max_length = 255)]
    pub name: ProviderName,
    pub provider_type: ProviderType,
    /// Token of 1–8192 printable ASCII characters without spaces. It is stored encrypted and never
    /// returned.
    #[schema(value_type = String, min_length = 1, max_length = 8192)]
    pub token: ProviderToken,
    /// Address of the API, without `/v1`, by default that of the server's settings for the type. It
    /// must be `https`, or in a network that the server's settings allow.
    #[deserr(default)]
    #[schema(value_type = Option<String>, max_length = 2048)]
    pub base_url: Option<ProviderUrl>,
    /// Seconds for which a list of items is used again, 0–86400. 0 fetches it for each use.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, maximum = 86_400, default = 300)]
    pub cache_ttl_seconds: Option<CacheTtl>,
}

/// Changes of a credential provider. Absent and null fields are not changed.
#[derive(Deserr, ToSchema)]
pub struct UpdateCredentialProvider {
    /// New name of 1–255 characters, none of them a control character, unique in the organization.
    #[deserr(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255)]
    pub name: Option<ProviderName>,
    /// New token of 1–8192 printable ASCII characters without spaces.
    #[deserr(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 8192)]
    pub token: Option<ProviderToken>,
    /// Whether the provider is asked when credentials are looked up.
    #[deserr(default)]
    pub enabled: Option<bool>,
    /// Providers with a lower number are asked first: 0–1000000, 0 by default.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, maximum = 1_000_000)]
    pub priority: Option<ProviderPriority>,
    /// Seconds for which a list of items is used again, 0–86400. 0 fetches it for each use.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, maximum = 86_400)]
    pub cache_ttl_seconds: Option<CacheTtl>,
    /// New address of the API. One with another scheme, host or port needs a `token`, so that the
    /// stored one is not sent to a server that it is not for.
    #[deserr(default)]
    #[schema(value_type = Option<String>, max_length = 2048)]
    pub base_url: Option<ProviderUrl>,
}

/// Filter and paging of the list of credential providers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListCredentialProviders {
    /// Text to search for in id and name, case-insensitive. At most 255 characters.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "vault")]
    pub query: Option<SearchText>,
    #[deserr(default)]
    #[param(ignore)]
    pub limit: Limit,
    #[deserr(default)]
    #[param(ignore)]
    pub offset: Offset,
}

impl ListCredentialProviders {
    #[must_use]
    pub fn page(&self) -> Page {
        Page {
            limit: self.limit,
            offset: self.offset,
        }
    }
}

/// The name of a provider, without spaces around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderName(String);

impl ProviderName {
    pub const MAX: usize = 255;

    /// Parses a name.
    ///
    /// # Errors
    /// Returns the rule that the text breaks.
    pub fn parse(text: &str) -> Result<ProviderName, String> {
        let name = text.trim();
        let count = name.chars().count();
        if !(1..=Self::MAX).contains(&count) || name.chars().any(char::is_control) {
            return Err(format!(
                "must have 1 to {} characters, none of them a control character",
                Self::MAX
            ));
        }
        if name.parse::<ProviderId>().is_ok() {
            return Err("must not have the form of a provider id".to_owned());
        }
        Ok(ProviderName(name.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<E: DeserializeError> Deserr<E> for ProviderName {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| ProviderName::parse(&text))
    }
}

/// The address of the API of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderUrl(pub Url);

impl<E: DeserializeError> Deserr<E> for ProviderUrl {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| {
            // The message does not repeat the text, which may contain a password.
            let url = Url::parse(&text).map_err(|_| "must be an http or https URL".to_owned());
            url.map(ProviderUrl)
        })
    }
}
