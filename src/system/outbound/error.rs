//! Why a request has no response. None of the texts contains a header, a body or more of a URL than
//! its host.

use std::{error::Error, io, path::PathBuf, time::Duration};

use rustls::CertificateError;

/// Why a request to a configured address has no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    #[error("not an http or https URL with a host and without a user name")]
    InvalidUrl,
    #[error("the address of {host} is not public and not among the allowed networks")]
    AddressNotAllowed { host: String },
    #[error("{host} leads to this server itself")]
    OwnAddress { host: String },
    #[error("http to {host} is not allowed outside of the allowed networks: use https")]
    PlainHttpNotAllowed { host: String },
    #[error("cannot resolve {host}")]
    Resolve { host: String },
    #[error("cannot connect to {host}: {reason}")]
    Connect { host: String, reason: io::ErrorKind },
    #[error("no connection to {host} within {limit:?}")]
    ConnectTimeout { host: String, limit: Duration },
    #[error("TLS with {host} failed: {reason}")]
    Tls { host: String, reason: &'static str },
    #[error("no complete response within {limit:?}")]
    Timeout { limit: Duration },
    #[error("the response redirects to another origin")]
    CrossOriginRedirect,
    #[error("more than {limit} redirects")]
    TooManyRedirects { limit: usize },
    #[error("the response has more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("{host} closed the connection, or its response is not valid HTTP")]
    Interrupted { host: String },
}

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum OutboundSetupError {
    #[error("cannot read certificates of authorities from {}: {reason}", .path.display())]
    Authorities { path: PathBuf, reason: String },
    #[error("TLS cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the program is stopping")]
    Stopped,
}

impl OutboundError {
    /// Returns the reason why the transport failed.
    pub(super) fn from_transport(error: &hyper_util::client::legacy::Error, host: &str) -> Self {
        if let Some(error) = find_cause::<OutboundError>(error) {
            return error.clone();
        }
        let host = host.to_owned();
        match find_cause::<rustls::Error>(error) {
            Some(error) => OutboundError::Tls {
                host,
                reason: describe_tls(error),
            },
            None if error.is_connect() => OutboundError::Tls {
                host,
                reason: "the server closed the connection",
            },
            None => OutboundError::Interrupted { host },
        }
    }
}

/// Returns the first error of a type among an error and its causes.
fn find_cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    if let Some(found) = error.downcast_ref::<T>() {
        return Some(found);
    }
    // The source of an I/O error is not the error that it wraps, but the source of that.
    let wrapped = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match wrapped {
        Some(wrapped) => find_cause(wrapped),
        None => error.source().and_then(find_cause),
    }
}

/// Returns a fixed text: that of the error contains names from the server's certificate.
fn describe_tls(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(reason) => match reason {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the certificate is not valid yet"
            }
            CertificateError::Revoked => "the certificate is revoked",
            CertificateError::UnknownIssuer => "the authority of the certificate is not known",
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the certificate is for another name"
            }
            _ => "the certificate is invalid",
        },
        rustls::Error::AlertReceived(_) => "the server refused the handshake",
        _ => "the server does not speak a supported version of TLS",
    }
}
