//! TLS between control and hosts. Each side presents a certificate of the fleet's authority.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use rcgen::{ExtendedKeyUsagePurpose, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring::default_provider},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
    version::TLS13,
};
use secrecy::ExposeSecret;

use super::{Authority, HostIdentityError, HostKey};

/// The name of control in its certificate. `.internal` is reserved for private use.
const CONTROL_NAME: &str = "control.berth.internal";
/// The lifetime of control's certificate, whose key is never stored: that of its process, at most.
const CONTROL_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

impl HostKey {
    /// Returns the TLS settings of a host's server. It demands a client certificate of the
    /// authority, which only control has. `certificate` and `authority` are PEM-encoded.
    pub fn server_config(
        &self,
        certificate: &str,
        authority: &str,
    ) -> Result<ServerConfig, HostIdentityError> {
        let certificate = parse_certificate(certificate)?;
        let roots = Arc::new(root_store(authority)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(invalid_authority)?;
        let key = PrivateKeyDer::from_pem_slice(self.to_pem().expose_secret().as_bytes())
            .map_err(|_| HostIdentityError::InvalidPrivateKey)?;
        ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(invalid_authority)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate], key)
            .map_err(|_| HostIdentityError::InvalidCertificate)
    }
}

impl Authority {
    /// Returns the TLS settings of control as a client of hosts, with a new key and certificate.
    pub fn client_config(&self, now: DateTime<Utc>) -> Result<ClientConfig, HostIdentityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        let key = key.map_err(HostIdentityError::Create)?;
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        let expires_at = now + CONTROL_LIFETIME;
        let issued = self.issue(&key, CONTROL_NAME, usage, now, expires_at)?;
        let private = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|_| HostIdentityError::InvalidPrivateKey)?;
        ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(invalid_authority)?
            .with_root_certificates(root_store(self.certificate())?)
            .with_client_auth_cert(vec![issued.der().clone()], private)
            .map_err(invalid_authority)
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

fn parse_certificate(pem: &str) -> Result<CertificateDer<'static>, HostIdentityError> {
    let parsed = CertificateDer::from_pem_slice(pem.as_bytes());
    parsed.map_err(|_| HostIdentityError::InvalidCertificate)
}

fn root_store(authority: &str) -> Result<RootCertStore, HostIdentityError> {
    let mut roots = RootCertStore::empty();
    let added = roots.add(parse_certificate(authority)?);
    added.map_err(|_| HostIdentityError::InvalidCertificate)?;
    Ok(roots)
}

fn invalid_authority(error: impl std::fmt::Display) -> HostIdentityError {
    HostIdentityError::InvalidAuthority(error.to_string())
}
