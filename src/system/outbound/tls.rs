//! TLS with the authorities of the system, and further ones.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{
        WebPkiSupportedAlgorithms, ring::default_provider, verify_tls12_signature,
        verify_tls13_signature,
    },
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

use super::OutboundSetupError;

/// Returns settings that accept the authorities of the system and those in a file of PEM.
///
/// # Errors
/// Fails if the file has no certificate, or one that is invalid. A system without authorities is
/// no error, because there may be no request that needs them.
pub(super) fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, OutboundSetupError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (accepted, ignored) = roots.add_parsable_certificates(found.certs);
    if accepted == 0 {
        let errors = found.errors.len();
        tracing::warn!(
            ignored,
            errors,
            "the system has no certificates of authorities"
        );
    }
    if let Some(path) = ca_file {
        add_file(&mut roots, path).map_err(|reason| OutboundSetupError::Authorities {
            path: path.to_owned(),
            reason,
        })?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
    let mut count = 0;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
        count += 1;
    }
    match count {
        0 => Err("the file has no certificate".to_owned()),
        _ => Ok(()),
    }
}

/// Returns settings with which the server may have any certificate, whose key it must have.
pub(super) fn accepting_any_certificate(mut settings: ClientConfig) -> ClientConfig {
    let algorithms = default_provider().signature_verification_algorithms;
    let verifier = AnyCertificate(algorithms);
    settings
        .dangerous()
        .set_certificate_verifier(Arc::new(verifier));
    settings
}

#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
