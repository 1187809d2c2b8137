//! The certificate authority of a fleet.
//!
//! Hosts are certified as servers and control as a client, so that a host cannot act as control
//! towards another host.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateSigningRequestParams,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber, date_time_ymd,
};
use rustls::{
    RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, UnixTime, pem::PemObject},
    server::WebPkiClientVerifier,
};
use secrecy::{ExposeSecret, SecretString};

use super::{HostIdentityError, HostPublicKey};

/// The name of the authority in its certificate.
const AUTHORITY_NAME: &str = "Berth fleet";
/// The difference between the clocks of a host and of control that certificates tolerate.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);
/// The start of a PEM block.
const PEM_START: &str = "-----BEGIN ";

/// A certificate authority: its certificate and its private key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate that an authority has issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    pub pem: String,
    pub expires_at: DateTime<Utc>,
}

/// A request for a certificate, whose signature proves that its sender had the private key. The
/// names and properties that it asks for are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    key: rcgen::PublicKey,
    public: HostPublicKey,
}

impl CertificateRequest {
    /// Parses a PEM-encoded request, and verifies its signature.
    pub fn from_pem(pem: &str) -> Result<CertificateRequest, HostIdentityError> {
        let request = CertificateSigningRequestParams::from_pem(pem)
            .map_err(|_| HostIdentityError::InvalidRequest)?;
        let key = request.public_key;
        if PublicKeyData::algorithm(&key) != &PKCS_ECDSA_P256_SHA256 {
            return Err(HostIdentityError::InvalidRequest);
        }
        let public = HostPublicKey::from_point(key.der_bytes());
        let public = public.map_err(|_| HostIdentityError::InvalidRequest)?;
        Ok(CertificateRequest { key, public })
    }

    pub fn public_key(&self) -> &HostPublicKey {
        &self.public
    }
}

impl Authority {
    /// Creates an authority and returns its private key and its certificate as PEM.
    pub fn generate() -> Result<SecretString, HostIdentityError> {
        let key =
            KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(HostIdentityError::Create)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, AUTHORITY_NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.serial_number = Some(serial_number());
        let certificate = params
            .self_signed(&key)
            .map_err(HostIdentityError::Create)?;
        let pem = format!("{}{}", key.serialize_pem(), certificate.pem());
        Ok(SecretString::from(pem))
    }

    /// Parses a private key and the certificate of its authority, in any order.
    pub fn from_pem(pem: &SecretString) -> Result<Authority, HostIdentityError> {
        let invalid = |reason: &str| HostIdentityError::InvalidAuthority(reason.to_owned());
        let blocks = pem_blocks(pem.expose_secret());
        let find = |label: &str| {
            let mut found = blocks.iter().filter(|block| block.contains(label));
            match (found.next(), found.next()) {
                (Some(block), None) => Ok(*block),
                _ => Err(invalid(&format!("it must have one block {label}"))),
            }
        };
        let certificate = find("BEGIN CERTIFICATE-----")?;
        let key = find("PRIVATE KEY-----")?;
        let key = KeyPair::from_pkcs8_pem_and_sign_algo(key, &PKCS_ECDSA_P256_SHA256)
            .map_err(|_| invalid("its key must be a P-256 key as PKCS #8"))?;
        let issuer = Issuer::from_ca_cert_pem(certificate, key)
            .map_err(|_| invalid("its certificate cannot be parsed"))?;
        let authority = Authority {
            issuer,
            certificate: format!("{}\n", certificate.trim_end()),
        };
        let checked = authority.check(Utc::now());
        checked.map_err(|reason| invalid(&reason))?;
        Ok(authority)
    }

    /// Returns the certificate of the authority as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate for a TLS server with the name `name` and the key of `request`.
    pub fn issue_server(
        &self,
        request: &CertificateRequest,
        name: &str,
        now: DateTime<Utc>,
        lifetime: Duration,
    ) -> Result<IssuedCertificate, HostIdentityError> {
        let usage = ExtendedKeyUsagePurpose::ServerAuth;
        let expires_at = now + lifetime;
        let certificate = self.issue(&request.key, name, usage, now, expires_at)?;
        Ok(IssuedCertificate {
            pem: certificate.pem(),
            expires_at,
        })
    }

    /// Checks that what the authority issues is valid, by issuing a certificate: its key may belong
    /// to another certificate.
    fn check(&self, now: DateTime<Utc>) -> Result<(), String> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(describe)?;
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        let issued = self.issue(&key, "check", usage, now, now + Duration::from_secs(60));
        let issued = issued.map_err(describe)?;
        let root = CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(describe)?;
        let mut roots = RootCertStore::empty();
        roots.add(root).map_err(describe)?;
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().map_err(describe)?;
        let verified = verifier.verify_client_cert(issued.der(), &[], UnixTime::now());
        verified.map_err(describe)?;
        Ok(())
    }

    pub(super) fn issue(
        &self,
        key: &impl PublicKeyData,
        name: &str,
        usage: ExtendedKeyUsagePurpose,
        now: DateTime<Utc>,
        expires_at: DateTime<Utc>,
    ) -> Result<Certificate, HostIdentityError> {
        let name = name.to_owned();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, &*name);
        let name = name.try_into().map_err(HostIdentityError::Create)?;
        params.subject_alt_names = vec![SanType::DnsName(name)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.serial_number = Some(serial_number());
        params.use_authority_key_identifier_extension = true;
        params.not_before = date_time_ymd(1970, 1, 1) + since_epoch(now - MAX_CLOCK_SKEW);
        params.not_after = date_time_ymd(1970, 1, 1) + since_epoch(expires_at);
        let certificate = params.signed_by(key, &self.issuer);
        certificate.map_err(HostIdentityError::Create)
    }
}

fn describe(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn since_epoch(time: DateTime<Utc>) -> Duration {
    Duration::from_secs(time.timestamp().try_into().unwrap_or_default())
}

fn serial_number() -> SerialNumber {
    SerialNumber::from_slice(uuid::Uuid::new_v4().as_bytes())
}

/// Splits a text into its PEM blocks.
fn pem_blocks(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = text.match_indices(PEM_START).map(|(at, _)| at).collect();
    starts.push(text.len());
    starts
        .windows(2)
        .map(|pair| &text[pair[0]..pair[1]])
        .collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{IsCa, SanType};
    use rustls::{
        client::{WebPkiServerVerifier, danger::ServerCertVerifier},
        pki_types::ServerName,
    };

    use super::*;
    use crate::system::identity::HostKey;

    const NAME: &str = "a.host.berth.internal";
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn authority() -> Authority {
        Authority::from_pem(&Authority::generate().unwrap()).unwrap()
    }

    fn issue(authority: &Authority, now: DateTime<Utc>) -> IssuedCertificate {
        let request = HostKey::generate().unwrap().certificate_request().unwrap();
        let request = CertificateRequest::from_pem(&request).unwrap();
        authority.issue_server(&request, NAME, now, DAY).unwrap()
    }

    /// Returns whether `certificate` is that of the server `name` for clients of `authority`.
    fn is_server(authority: &Authority, certificate: &IssuedCertificate, name: &str) -> bool {
        let root = CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(root).unwrap();
        let provider = Arc::new(default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let leaf = CertificateDer::from_pem_slice(certificate.pem.as_bytes()).unwrap();
        let name = ServerName::try_from(name).unwrap();
        let verifier = verifier.build().unwrap();
        let verified = verifier.verify_server_cert(&leaf, &[], &name, &[], UnixTime::now());
        verified.is_ok()
    }

    #[test]
    fn certificate_is_valid_for_its_name_authority_and_lifetime_only() {
        let (authority, other) = (authority(), authority());
        let now = Utc::now();
        let certificate = issue(&authority, now);
        assert_eq!(certificate.expires_at, now + DAY);
        assert!(is_server(&authority, &certificate, NAME));
        assert!(!is_server(
            &authority,
            &certificate,
            "b.host.berth.internal"
        ));
        assert!(!is_server(&other, &certificate, NAME));
        let expired = issue(&authority, now - 2 * DAY);
        assert!(!is_server(&authority, &expired, NAME));
    }

    #[test]
    fn certificate_of_a_host_is_not_valid_for_a_client() {
        let authority = authority();
        let certificate = issue(&authority, Utc::now());
        let root = CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(root).unwrap();
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let leaf = CertificateDer::from_pem_slice(certificate.pem.as_bytes()).unwrap();
        let verifier = verifier.build().unwrap();
        let verified = verifier.verify_client_cert(&leaf, &[], UnixTime::now());
        assert!(verified.is_err());
    }

    #[test]
    fn names_and_properties_of_a_request_are_ignored() {
        let authority = authority();
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        let foreign = "other.host.berth.internal";
        params.subject_alt_names = vec![SanType::DnsName(foreign.try_into().unwrap())];
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let request = params.serialize_request(&pair).unwrap().pem().unwrap();
        let request = CertificateRequest::from_pem(&request).unwrap();
        let issued = authority
            .issue_server(&request, NAME, Utc::now(), DAY)
            .unwrap();
        assert!(is_server(&authority, &issued, NAME));
        assert!(!is_server(&authority, &issued, foreign));
    }

    #[test]
    fn request_with_another_kind_of_key_or_a_wrong_signature_is_rejected() {
        let pair = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let params = CertificateParams::default();
        let ed25519 = params.serialize_request(&pair).unwrap().pem().unwrap();
        let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let p384 = params.serialize_request(&pair).unwrap().pem().unwrap();
        let own = HostKey::generate().unwrap().certificate_request().unwrap();
        let mut lines: Vec<&str> = own.lines().collect();
        let signature = lines.len() - 2;
        let changed = lines[signature].replace(|c: char| c.is_ascii_digit(), "A");
        assert_ne!(changed, lines[signature]);
        lines[signature] = &changed;
        let certificate = authority().certificate().to_owned();
        for request in [ed25519, p384, lines.join("\n"), certificate, String::new()] {
            let parsed = CertificateRequest::from_pem(&request);
            let refused = matches!(parsed, Err(HostIdentityError::InvalidRequest));
            assert!(refused, "{request}");
        }
    }

    #[test]
    fn authority_needs_one_key_and_its_own_certificate() {
        let (first, second) = (
            Authority::generate().unwrap(),
            Authority::generate().unwrap(),
        );
        let (first, second) = (first.expose_secret(), second.expose_secret());
        let [key, certificate] = pem_blocks(first)[..] else {
            panic!("two blocks");
        };
        let other = pem_blocks(second)[1];
        let reversed = SecretString::from(format!("{certificate}\n{key}"));
        assert!(Authority::from_pem(&reversed).is_ok());
        for (text, reason) in [
            (String::new(), "one block BEGIN CERTIFICATE"),
            (key.to_owned(), "one block BEGIN CERTIFICATE"),
            (certificate.to_owned(), "one block PRIVATE KEY"),
            (format!("{first}{second}"), "one block"),
            (format!("{key}{other}"), "signature"),
            (
                format!("{certificate}-----BEGIN PRIVATE KEY-----\nAA"),
                "must be a P-256 key",
            ),
        ] {
            let error = Authority::from_pem(&SecretString::from(text))
                .err()
                .unwrap();
            let message = error.to_string();
            assert!(
                message.to_lowercase().contains(&reason.to_lowercase()),
                "{message}"
            );
            assert!(!message.contains(key.lines().nth(1).unwrap()), "{message}");
        }
    }
}
