//! The identities of a fleet of hosts: keys, certificates and tokens signed with these keys.
//!
//! - [`HostKey`]: the key pair of a host, which its agent creates once. The private part never
//!   leaves the machine.
//! - [`HostPublicKey`]: its public part, which identifies the host for control.
//! - [`Authority`]: control's certificate authority. It certifies hosts and control itself, each
//!   for one direction of TLS.
//! - `tls`: the TLS settings of hosts and of control.
//! - [`HostTokens`]: verifies tokens with which a host proves that it has its private key.

mod authority;
mod host_key;
mod host_token;
mod tls;

pub use authority::{Authority, CertificateRequest, IssuedCertificate};
pub use host_key::{HostKey, HostPublicKey};
pub use host_token::{HostTokens, MAX_CLOCK_SKEW, TokenAudience};

/// Why a key, a certificate or a request for one cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostIdentityError {
    #[error("not the public part of a P-256 key")]
    InvalidPublicKey,
    #[error("not a PEM-encoded P-256 private key")]
    InvalidPrivateKey,
    #[error("not a PEM-encoded certificate signing request with a valid signature of a P-256 key")]
    InvalidRequest,
    #[error("not a PEM-encoded private key and the certificate of its authority: {0}")]
    InvalidAuthority(String),
    #[error("not a PEM-encoded certificate of this key")]
    InvalidCertificate,
    #[error("cannot create a certificate: {0}")]
    Create(rcgen::Error),
}
