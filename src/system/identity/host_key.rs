//! The key pair of a host.

use std::{fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::EncodingKey;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use secrecy::{ExposeSecret, SecretString};

use super::HostIdentityError;

/// The bytes of an uncompressed point of P-256: a mark and two coordinates.
const POINT_BYTES: usize = 65;
/// The mark of an uncompressed point.
const UNCOMPRESSED: u8 = 4;

/// The public key of a host. Its text form is base64url without padding.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HostPublicKey([u8; POINT_BYTES]);

impl HostPublicKey {
    /// Parses an uncompressed point. Whether it is on the curve shows when a signature is verified.
    pub fn from_point(bytes: &[u8]) -> Result<HostPublicKey, HostIdentityError> {
        let point: [u8; POINT_BYTES] = bytes
            .try_into()
            .map_err(|_| HostIdentityError::InvalidPublicKey)?;
        match point[0] {
            UNCOMPRESSED => Ok(HostPublicKey(point)),
            _ => Err(HostIdentityError::InvalidPublicKey),
        }
    }

    /// Returns the uncompressed point.
    pub fn as_point(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for HostPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for HostPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostPublicKey({self})")
    }
}

impl FromStr for HostPublicKey {
    type Err = HostIdentityError;

    fn from_str(text: &str) -> Result<Self, HostIdentityError> {
        let bytes = URL_SAFE_NO_PAD.decode(text);
        HostPublicKey::from_point(&bytes.map_err(|_| HostIdentityError::InvalidPublicKey)?)
    }
}

/// The key pair of a host.
pub struct HostKey {
    pair: KeyPair,
    public: HostPublicKey,
}

impl HostKey {
    pub fn generate() -> Result<HostKey, HostIdentityError> {
        let pair =
            KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(HostIdentityError::Create)?;
        HostKey::of(pair)
    }

    /// Parses the text that [`Self::to_pem`] returns.
    pub fn from_pem(pem: &SecretString) -> Result<HostKey, HostIdentityError> {
        let pair =
            KeyPair::from_pkcs8_pem_and_sign_algo(pem.expose_secret(), &PKCS_ECDSA_P256_SHA256);
        HostKey::of(pair.map_err(|_| HostIdentityError::InvalidPrivateKey)?)
    }

    fn of(pair: KeyPair) -> Result<HostKey, HostIdentityError> {
        let public = HostPublicKey::from_point(pair.der_bytes())?;
        Ok(HostKey { pair, public })
    }

    /// Returns the private key as PKCS #8.
    pub fn to_pem(&self) -> SecretString {
        SecretString::from(self.pair.serialize_pem())
    }

    pub fn public(&self) -> &HostPublicKey {
        &self.public
    }

    /// Returns a request for a certificate. It has no name: control decides on that.
    pub fn certificate_request(&self) -> Result<String, HostIdentityError> {
        let params = CertificateParams::default();
        let request = params.serialize_request(&self.pair);
        let pem = request.and_then(|request| request.pem());
        pem.map_err(HostIdentityError::Create)
    }

    pub(super) fn signing_key(&self) -> EncodingKey {
        EncodingKey::from_ec_der(self.pair.serialized_der())
    }
}
