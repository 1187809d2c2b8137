//! An S3-compatible service: rclone, which serves a temporary directory.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
};

use berth::control::blobs::{
    S3Config,
    settings::{BlobConfig, BlobSettings},
};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

use super::{python::python, sockets::free_address, wait::until};

pub const BUCKET: &str = "berth-test";
/// Precedes the keys of all blobs.
pub const PREFIX: &str = "of/berth";
pub const ACCESS_KEY_ID: &str = "canary-of-the-access-key-id";
pub const SECRET_ACCESS_KEY: &str = "canary-of-the-secret-access-key";
pub const SESSION_TOKEN: &str = "canary-of-the-session-token";

/// A service with one bucket. Its objects survive a restart.
pub struct S3Server {
    /// Has the bucket as a directory, and a file with the access key.
    directory: TempDir,
    address: SocketAddr,
    child: Child,
}

impl S3Server {
    pub async fn start() -> S3Server {
        let directory = TempDir::with_prefix("berth-s3-").unwrap();
        fs::create_dir_all(directory.path().join("buckets").join(BUCKET)).unwrap();
        let key = directory.path().join("access-key");
        let content = format!(
            "[default]\naws_access_key_id = {ACCESS_KEY_ID}\n\
             aws_secret_access_key = {SECRET_ACCESS_KEY}\n"
        );
        fs::write(&key, content).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let address = free_address();
        let child = serve(directory.path(), address);
        let server = S3Server {
            directory,
            address,
            child,
        };
        server.is_ready().await;
        server
    }

    async fn is_ready(&self) {
        until("the S3-compatible service", async || {
            TcpStream::connect(self.address).await.ok()
        })
        .await;
    }

    /// Kills the service with SIGKILL.
    pub async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().expect("it runs").cast_signed())
    }

    /// Starts the service again at its address, after a kill.
    pub async fn restart(&mut self) {
        self.child = serve(self.directory.path(), self.address);
        self.is_ready().await;
    }

    /// Returns the directory of the blobs, of which each is a file with its key as the path. The
    /// service caches lists: tests only read there.
    pub fn blobs(&self) -> PathBuf {
        self.directory
            .path()
            .join("buckets")
            .join(BUCKET)
            .join(PREFIX)
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the file with the access key.
    pub fn key_file(&self) -> PathBuf {
        self.directory.path().join("access-key")
    }

    /// Returns the variables of a server that select the bucket and have the access key.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("BERTH_BLOB_STORE", format!("s3://{BUCKET}/{PREFIX}")),
            ("BERTH_BLOB_ENDPOINT", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY.to_owned()),
            ("AWS_SESSION_TOKEN", SESSION_TOKEN.to_owned()),
        ]
    }

    /// Returns the same settings with the key in the file.
    pub fn settings(&self) -> BlobSettings {
        BlobSettings {
            blob_store: Some(format!("s3://{BUCKET}/{PREFIX}")),
            blob_endpoint: Some(self.endpoint()),
            blob_region: None,
            blob_addressing: None,
            blob_credentials_file: Some(self.key_file()),
            blob_allow_http: false,
        }
    }
}

/// Returns the validated settings of a bucket.
pub fn config(settings: &BlobSettings) -> S3Config {
    match settings.check().unwrap() {
        BlobConfig::S3(config) => *config,
        BlobConfig::StateDir | BlobConfig::Shared(_) => panic!("no bucket"),
    }
}

/// Starts the service, which ends with the test.
fn serve(directory: &Path, address: SocketAddr) -> Child {
    let log = fs::File::create(directory.join("log")).unwrap();
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(python().with_file_name("rclone"))
        .args(["serve", "s3", "--config", "/dev/null"])
        .args(["--addr", &address.to_string()])
        // One value, quoted because it contains a comma.
        .env(
            "RCLONE_AUTH_KEY",
            format!("\"{ACCESS_KEY_ID},{SECRET_ACCESS_KEY}\""),
        )
        .arg(directory.join("buckets"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .expect("setpriv and rclone: does `make test` run this?")
}
