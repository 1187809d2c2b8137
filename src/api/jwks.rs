//! Public keys in the format of RFC 7517.

use serde::Serialize;
use utoipa::ToSchema;

/// The keys with which tokens of login flows can be verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct JsonWebKeySet {
    /// Newest first.
    pub keys: Vec<JsonWebKey>,
}

/// An Ed25519 public key (RFC 8037).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct JsonWebKey {
    /// The id of the key, which the header of a token names.
    #[schema(example = "5f0c2c1e9a7b4d36")]
    pub kid: String,
    /// Always `OKP`.
    #[schema(example = "OKP")]
    pub kty: &'static str,
    /// Always `Ed25519`.
    #[schema(example = "Ed25519")]
    pub crv: &'static str,
    /// Always `EdDSA`.
    #[schema(example = "EdDSA")]
    pub alg: &'static str,
    /// Always `sig`.
    #[serde(rename = "use")]
    #[schema(example = "sig")]
    pub purpose: &'static str,
    /// The 32 bytes of the key as base64url.
    #[schema(example = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")]
    pub x: String,
}

impl JsonWebKey {
    /// Returns an Ed25519 key for signatures.
    #[must_use]
    pub fn ed25519(kid: String, x: String) -> JsonWebKey {
        JsonWebKey {
            kid,
            kty: "OKP",
            crv: "Ed25519",
            alg: "EdDSA",
            purpose: "sig",
            x,
        }
    }
}
