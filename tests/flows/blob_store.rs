//! The blob store, in a directory and in a bucket of an S3-compatible service.

use std::{
    fs, io,
    ops::Range,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use berth::control::blobs::{
    BlobError, BlobKeys, BlobStore, OpenS3Error, PutError, PutLimits, settings::BlobSettings,
};
use bytes::Bytes;
use chrono::Utc;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use crate::support::{
    s3::{S3Server, SECRET_ACCESS_KEY, config},
    state::private_directory,
    wait::{in_time, until},
};

const LIMITS: PutLimits = PutLimits {
    bytes: 256 << 20,
    time: Duration::from_secs(60),
};

const KEYS: BlobKeys = BlobKeys {
    prefix: "a",
    includes: |_| true,
};

/// A store, and where its files are.
struct TestStore {
    blobs: BlobStore,
    /// Has each blob as a file.
    files: PathBuf,
    /// Holds the records of uploads to a bucket.
    uploads: TempDir,
    server: Option<S3Server>,
}

impl TestStore {
    fn in_directory() -> TestStore {
        let uploads = tempfile::tempdir().unwrap();
        let files = uploads.path().join("blobs");
        TestStore {
            blobs: BlobStore::open_directory(&files, &[KEYS]).unwrap(),
            files,
            uploads,
            server: None,
        }
    }

    async fn in_bucket() -> TestStore {
        let server = S3Server::start().await;
        let uploads = tempfile::tempdir().unwrap();
        TestStore {
            blobs: open(&server, uploads.path()).await,
            files: server.blobs(),
            uploads,
            server: Some(server),
        }
    }

    fn server(&mut self) -> &mut S3Server {
        self.server.as_mut().expect("a bucket")
    }

    /// Returns the names of all files of the store.
    fn files(&self) -> Vec<String> {
        names(&self.files)
    }

    fn recorded_uploads(&self) -> usize {
        names(self.uploads.path()).len()
    }

    async fn read(&self, key: &str, range: Range<u64>) -> Vec<u8> {
        let stream = self.blobs.get(key, range).await.unwrap();
        let chunks: Vec<Bytes> = stream.try_collect().await.unwrap();
        chunks.concat()
    }
}

/// Opens the bucket, as a start of control does.
async fn open(server: &S3Server, uploads: &Path) -> BlobStore {
    let config = config(&server.settings());
    let blobs = BlobStore::open_s3(&config, uploads.to_owned()).await;
    blobs.unwrap()
}

async fn both() -> [TestStore; 2] {
    [TestStore::in_directory(), TestStore::in_bucket().await]
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
    entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect()
}

fn chunks(count: usize) -> impl Stream<Item = io::Result<Bytes>> {
    stream::iter((0..count).map(|n| Ok(Bytes::from(vec![n as u8; 1 << 20]))))
}

#[tokio::test]
async fn blob_is_stored_completely_and_read_in_ranges() {
    for store in both().await {
        let blobs = &store.blobs;
        assert!(!blobs.has_any(KEYS).await.unwrap());
        let stored = blobs.put("a/one", chunks(19), LIMITS).await;
        assert_eq!(stored.unwrap(), 19 << 20);
        assert_eq!(blobs.size("a/one").await.unwrap(), Some(19 << 20));
        let start = (8 << 20) - 2;
        let part = store.read("a/one", start..start + 4).await;
        assert_eq!(part, [7, 7, 8, 8]);
        let whole = store.read("a/one", 0..19 << 20).await;
        assert!(
            whole
                .chunks(1 << 20)
                .zip(0..19)
                .all(|(part, n)| part == vec![n; 1 << 20])
        );
        assert!(store.read("a/one", 7..7).await.is_empty());
        let stored = blobs.put("a/one", chunks(1), LIMITS).await;
        assert_eq!(stored.unwrap(), 1 << 20);
        assert_eq!(blobs.size("a/one").await.unwrap(), Some(1 << 20));
        assert_eq!(blobs.put("b", chunks(0), LIMITS).await.unwrap(), 0);
        assert_eq!(blobs.size("b").await.unwrap(), Some(0));
        assert_eq!(blobs.list("a").await.unwrap(), ["a/one"]);
        assert!(blobs.has_any(KEYS).await.unwrap());
        for (age, expected) in [(-60, &["a/one"][..]), (60, &[])] {
            let before = chrono::Utc::now() - chrono::TimeDelta::seconds(age);
            let found = blobs.list_older_than("a", before).await;
            assert_eq!(found.unwrap(), expected);
        }
        for _ in 0..2 {
            blobs.remove("a/one").await.unwrap();
        }
        assert_eq!(blobs.size("a/one").await.unwrap(), None);
        let gone = blobs.get("a/one", 0..1).await;
        assert!(matches!(gone, Err(BlobError::NotFound)));
        assert_eq!(blobs.list("a").await.unwrap(), [""; 0]);
    }
}

#[tokio::test]
async fn interrupted_put_leaves_only_the_old_blob() {
    for store in both().await {
        let blobs = &store.blobs;
        blobs.put("a", chunks(1), LIMITS).await.unwrap();
        let broken = chunks(12).chain(stream::iter([Err(io::Error::other("gone"))]));
        let error = blobs.put("a", broken, LIMITS).await.unwrap_err();
        assert!(matches!(error, PutError::Source(_)));
        assert_eq!(blobs.size("a").await.unwrap(), Some(1 << 20));
        assert_eq!(store.files(), ["a"]);
        assert!(store.server.is_none() || store.recorded_uploads() == 0);
    }
}

#[tokio::test]
async fn put_rejects_content_over_the_byte_or_time_limit() {
    for store in both().await {
        let blobs = &store.blobs;
        let bytes = (2 << 20) - 1;
        let long = blobs.put("a", chunks(2), PutLimits { bytes, ..LIMITS });
        assert!(matches!(long.await, Err(PutError::TooLong(limit)) if limit == bytes));
        let never = chunks(1).chain(stream::pending());
        let time = Duration::from_millis(50);
        let late = blobs.put("a", never, PutLimits { time, ..LIMITS }).await;
        assert!(matches!(late, Err(PutError::Timeout(limit)) if limit == time));
        let exact = PutLimits {
            bytes: 1 << 20,
            ..LIMITS
        };
        assert_eq!(blobs.put("b", chunks(1), exact).await.unwrap(), 1 << 20);
        assert_eq!(store.files(), ["b"]);
    }
}

#[tokio::test]
async fn files_of_blobs_are_readable_by_their_owner_only() {
    let store = TestStore::in_directory();
    store.blobs.put("a/one", chunks(1), LIMITS).await.unwrap();
    let found = fs::metadata(store.files.join("a/one")).unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
}

/// Starts a put whose content has ten chunks and does not end. Returns when its first part has
/// arrived.
async fn start_endless_put(store: &TestStore) -> tokio::task::JoinHandle<()> {
    let blobs = store.blobs.clone();
    let task = tokio::spawn(async move {
        let endless = chunks(10).chain(stream::pending());
        blobs.put("endless", endless, LIMITS).await.unwrap();
    });
    until("the first part", async || {
        (!store.files().is_empty()).then_some(())
    })
    .await;
    task
}

#[tokio::test]
async fn interrupted_upload_is_aborted_later_and_one_in_progress_is_not() {
    let store = TestStore::in_bucket().await;
    let task = start_endless_put(&store).await;
    store.blobs.abort_interrupted_uploads().await;
    assert_eq!((store.files().len(), store.recorded_uploads()), (1, 1));
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!((store.files().len(), store.recorded_uploads()), (1, 1));
    store.blobs.abort_interrupted_uploads().await;
    assert_eq!((store.files().len(), store.recorded_uploads()), (0, 0));
}

#[tokio::test]
async fn upload_of_a_killed_process_is_aborted_by_the_next_one() {
    let mut store = TestStore::in_bucket().await;
    let task = start_endless_put(&store).await;
    // A record that was written incompletely, and the task of a process that is gone.
    fs::write(store.uploads.path().join("incomplete"), "{").unwrap();
    task.abort();
    let next = open(store.server.as_ref().unwrap(), store.uploads.path()).await;
    store.server().kill().await;
    next.abort_interrupted_uploads().await;
    assert_eq!(
        store.recorded_uploads(),
        1,
        "kept until the service is back"
    );
    store.server().restart().await;
    next.abort_interrupted_uploads().await;
    assert_eq!(store.recorded_uploads(), 0);
}

#[tokio::test]
async fn put_reads_no_more_than_it_can_send() {
    let mut store = TestStore::in_bucket().await;
    let read = Arc::new(AtomicUsize::new(0));
    let (counter, server) = (read.clone(), store.server().pid());
    // The service accepts nothing once the first part has been read.
    let content = chunks(200).inspect_ok(move |_| {
        if counter.fetch_add(1, Ordering::Relaxed) == 8 {
            kill(server, Signal::SIGSTOP).unwrap();
        }
    });
    let blobs = store.blobs.clone();
    let task = tokio::spawn(async move { blobs.put("long", content, LIMITS).await });
    until("the second part", async || {
        (read.load(Ordering::Relaxed) >= 16).then_some(())
    })
    .await;
    store.server().kill().await;
    let failed = in_time("the failure", task).await.unwrap();
    assert!(matches!(failed, Err(PutError::Blob(BlobError::Remote(_)))));
    // One or two parts in transfer, and one that is read.
    let read = read.load(Ordering::Relaxed);
    assert!(read <= 40, "{read}");
}

#[tokio::test]
async fn unreachable_service_is_an_error_and_loses_nothing() {
    let mut store = TestStore::in_bucket().await;
    store.blobs.put("a", chunks(1), LIMITS).await.unwrap();
    store.server().kill().await;
    let blobs = &store.blobs;
    let errors = [
        blobs.size("a").await.unwrap_err(),
        blobs.get("a", 0..1).await.err().unwrap(),
        blobs.list("").await.unwrap_err(),
        blobs.remove("a").await.unwrap_err(),
        match blobs.put("b", chunks(1), LIMITS).await {
            Err(PutError::Blob(error)) => error,
            other => panic!("{other:?}"),
        },
    ];
    for error in errors {
        let text = format!("{error} {error:?}");
        assert!(matches!(error, BlobError::Remote(_)), "{text}");
        assert!(text.contains("onnection refused"), "{text}");
        assert!(!text.contains("canary"), "{text}");
    }
    store.server().restart().await;
    assert_eq!(store.read("a", 0..2).await, [0, 0]);
    assert_eq!(
        store.blobs.put("b", chunks(1), LIMITS).await.unwrap(),
        1 << 20
    );
}

#[tokio::test]
async fn read_continues_after_a_restart_of_the_service() {
    let mut store = TestStore::in_bucket().await;
    store.blobs.put("a", chunks(40), LIMITS).await.unwrap();
    let mut content = store.blobs.get("a", 0..40 << 20).await.unwrap();
    let mut received = content.next().await.unwrap().unwrap().to_vec();
    store.server().kill().await;
    store.server().restart().await;
    while let Some(chunk) = content.next().await {
        received.extend(chunk.unwrap());
    }
    assert_eq!(received.len(), 40 << 20);
    assert!(
        received
            .chunks(1 << 20)
            .zip(0..40)
            .all(|(part, n)| part == vec![n; 1 << 20])
    );
}

#[tokio::test]
async fn unusable_bucket_is_an_error_with_the_reason() {
    let mut server = S3Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let wrong_key = directory.path().join("wrong-key");
    let right = fs::read_to_string(server.key_file()).unwrap();
    fs::write(
        &wrong_key,
        right.replace(SECRET_ACCESS_KEY, "canary-of-another-secret"),
    )
    .unwrap();
    fs::set_permissions(&wrong_key, fs::Permissions::from_mode(0o600)).unwrap();
    let fails = async |settings: &BlobSettings| {
        let config = config(settings);
        let opened = BlobStore::open_s3(&config, directory.path().to_owned()).await;
        let error = opened.unwrap_err();
        let text = error.to_string();
        assert!(
            !format!("{text} {error:?} {config:?}").contains("canary"),
            "{error:?}"
        );
        assert!(text.contains(&config.to_string()), "{text}");
        (error, text)
    };
    let missing = BlobSettings {
        blob_store: Some("s3://missing-bucket".to_owned()),
        ..server.settings()
    };
    let (error, text) = fails(&missing).await;
    assert!(matches!(error, OpenS3Error::NoBucket { .. }), "{text}");
    let denied = BlobSettings {
        blob_credentials_file: Some(wrong_key.clone()),
        ..server.settings()
    };
    let (_, text) = fails(&denied).await;
    assert!(
        text.contains("access denied: the credentials must permit s3:ListBucket"),
        "{text}"
    );
    assert!(text.contains("SignatureDoesNotMatch"), "{text}");
    server.kill().await;
    let (error, text) = fails(&server.settings()).await;
    assert!(matches!(error, OpenS3Error::Failed { .. }), "{text}");
    assert!(text.contains("onnection refused"), "{text}");
}

#[tokio::test]
async fn shared_directory_that_is_not_mounted_is_an_error() {
    let directory = private_directory();
    let blobs = BlobStore::open_shared(directory.path(), &[KEYS]).unwrap();
    blobs.put("a/one", chunks(1), LIMITS).await.unwrap();
    // As if the file system were unmounted.
    fs::remove_file(directory.path().join(".berth-id")).unwrap();
    fs::remove_file(directory.path().join("a/one")).unwrap();
    let errors = [
        blobs.size("a/one").await.err(),
        blobs.get("a/one", 0..3).await.err(),
        blobs.remove("a/one").await.err(),
        blobs.list("a").await.err(),
        blobs.list_older_than("a", Utc::now()).await.err(),
        blobs.has_any(KEYS).await.err(),
    ];
    for error in errors {
        assert!(matches!(error, Some(BlobError::Remote(_))), "{error:?}");
    }
    let refused = blobs.put("a/two", chunks(1), LIMITS).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("mounted"), "{refused}");
    assert_eq!(names(&directory.path().join("a")), Vec::<String>::new());
}
