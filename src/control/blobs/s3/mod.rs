//! A bucket of an S3-compatible service.
//!
//! Requests are signed with credentials that are read for each of them ([`credentials`]), sent by
//! our HTTP client ([`http_client`]), which bounds their time and hides what a service repeats of a
//! request in its errors, and repeated a bounded number of times if they fail. Blobs are uploaded
//! in parts ([`upload`]).

pub(super) mod credentials;
mod http_client;
pub(super) mod upload;

use std::{fmt, io, sync::Arc, time::Duration};

use futures::TryStreamExt;
use object_store::{
    BackoffConfig, ObjectStore, ObjectStoreExt, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
    multipart::MultipartStore,
    path::Path as Key,
};
use url::Url;

use credentials::{CredentialSource, Credentials};
use http_client::S3Connector;

/// The most repetitions of a failed request, and continuations of a read that broke.
const MAX_RETRIES: usize = 2;
/// The first and the longest delay before a failed request is repeated.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The age of a read beyond which it is not continued. Clients may read a long replay slowly.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// The key with which the permissions are checked. No blob has it.
const PROBE_KEY: &str = "berth-access-check";

/// The validated settings of a bucket.
#[derive(Debug, Clone)]
pub struct S3Config {
    pub bucket: String,
    /// Precedes the keys of all blobs.
    pub prefix: Key,
    /// The base URL of the bucket, or of the service if the path names the bucket. `None` for AWS.
    pub endpoint: Option<Url>,
    pub region: String,
    /// Whether the host names the bucket, and not the path.
    pub is_virtual_hosted: bool,
    pub credentials: CredentialSource,
}

/// Names the store in messages, without credentials.
impl fmt::Display for S3Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if !self.prefix.as_ref().is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        match &self.endpoint {
            Some(url) => write!(f, " at {}", url.as_str().trim_end_matches('/')),
            None => write!(f, " in {}", self.region),
        }
    }
}

/// Why a bucket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenS3Error {
    #[error("{store}: no such bucket")]
    NoBucket { store: String },
    #[error("{store}: access denied: the credentials must permit {permission} ({source})")]
    Denied {
        store: String,
        permission: &'static str,
        source: object_store::Error,
    },
    #[error("{store}: {source}")]
    Failed {
        store: String,
        source: object_store::Error,
    },
    #[error("no certificates of authorities for TLS: {0}")]
    Certificates(io::Error),
}

/// Returns the bucket, after a check that it exists and permits every operation.
pub(super) async fn open(config: &S3Config) -> Result<AmazonS3, OpenS3Error> {
    let connector = S3Connector::new().map_err(OpenS3Error::Certificates)?;
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&config.bucket)
        .with_region(&config.region)
        .with_virtual_hosted_style_request(config.is_virtual_hosted)
        .with_credentials(Arc::new(Credentials::new(config.credentials.clone())))
        // Not every service has bulk deletion.
        .with_disable_bulk_delete(true)
        .with_retry(RetryConfig {
            backoff: BackoffConfig {
                init_backoff: RETRY_DELAY.0,
                max_backoff: RETRY_DELAY.1,
                base: 2.0,
            },
            max_retries: MAX_RETRIES,
            retry_timeout: RETRY_TIMEOUT,
        })
        .with_http_connector(connector);
    if let Some(endpoint) = &config.endpoint {
        // The settings have checked that http is permitted.
        builder = builder
            .with_allow_http(endpoint.scheme() == "http")
            .with_endpoint(endpoint.as_str().trim_end_matches('/'));
    }
    let bucket = builder.build();
    let bucket = bucket.map_err(|error| open_error(config, "", error))?;
    check_access(config, &bucket).await?;
    Ok(bucket)
}

/// Checks that the bucket exists and permits every operation. Leaves nothing in it.
async fn check_access(config: &S3Config, bucket: &AmazonS3) -> Result<(), OpenS3Error> {
    let check = |permission: &'static str| move |error| open_error(config, permission, error);
    let probe: Key = config
        .prefix
        .parts()
        .chain(Key::from(PROBE_KEY).parts())
        .collect();
    let listed = bucket.list(Some(&config.prefix)).try_next().await;
    listed.map_err(check("s3:ListBucket"))?;
    let upload = bucket.create_multipart(&probe).await;
    let upload = upload.map_err(check("s3:PutObject"))?;
    let aborted = bucket.abort_multipart(&probe, &upload).await;
    aborted.map_err(check("s3:AbortMultipartUpload"))?;
    for (permission, result) in [
        ("s3:GetObject", bucket.head(&probe).await.map(|_| ())),
        ("s3:DeleteObject", bucket.delete(&probe).await),
    ] {
        match result {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(open_error(config, permission, error)),
        }
    }
    Ok(())
}

/// Returns the error of a check. Errors of lists have no other sign of their reason than their
/// text, which ends with the status and the code of the service.
fn open_error(
    config: &S3Config,
    permission: &'static str,
    source: object_store::Error,
) -> OpenS3Error {
    let (store, reason) = (config.to_string(), source.to_string());
    let has_status = |status: &str| reason.contains(&format!("status code: {status}"));
    if has_status("404") {
        OpenS3Error::NoBucket { store }
    } else if has_status("401") || has_status("403") {
        OpenS3Error::Denied {
            store,
            permission,
            source,
        }
    } else {
        OpenS3Error::Failed { store, source }
    }
}
