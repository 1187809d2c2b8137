//! Tests of the profile service without browsers.

use std::path::Path;

use chrono::TimeDelta;
use futures::{TryStreamExt, stream};
use tempfile::TempDir;

use super::*;
use crate::{
    api::ids::BrowserId,
    control::{
        blobs::PutLimits,
        store::{
            BeginSave, NewProcess, NewProfileVersion, SaveSource, test_database::TestDatabase,
        },
    },
    system::files::archive::unpack::raw_tar::TarEntry,
};

const LIMITS: ProfileLimits = ProfileLimits {
    versions: 1,
    archive_bytes: 1000,
};

struct Fixture {
    profiles: Profiles,
    project: ProjectId,
    directory: TempDir,
    _database: TestDatabase,
}

impl Fixture {
    async fn new() -> Fixture {
        let (database, directory) = (TestDatabase::create(), tempfile::tempdir().unwrap());
        let store = database.open().await;
        let project = store.default_project("default", Utc::now()).await.unwrap();
        let store = store.begin_process(NewProcess::sample("a")).await.unwrap();
        Fixture {
            profiles: service(&store, directory.path()),
            project: project.id,
            directory,
            _database: database,
        }
    }

    fn store(&self) -> &Store {
        &self.profiles.inner.store
    }

    /// Stores an archive, which the service does not inspect, and returns its digest.
    async fn put(&self, digit: char) -> String {
        let digest: String = std::iter::repeat_n(digit, 64).collect();
        let limits = PutLimits {
            bytes: 1,
            time: Duration::from_secs(60),
        };
        let content = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"x"))]);
        let blobs = &self.profiles.inner.blobs;
        blobs
            .put(&blob_key(&digest), content, limits)
            .await
            .unwrap();
        digest
    }

    async fn publish(&self, profile: &ProfileId, blob: &str) {
        let store = self.store();
        let id = ulid::Ulid::generate().to_string();
        let begun = store.begin_profile_save(id, profile, SaveSource::Upload, Utc::now());
        let BeginSave::Started(save) = begun.await.unwrap() else {
            panic!("not started");
        };
        let new = NewProfileVersion {
            blob: blob.to_owned(),
            size_bytes: 1,
            content: Default::default(),
            chromium_version: None,
        };
        let published = store.publish_profile_version(&save, new, 1, Utc::now());
        published.await.unwrap().unwrap();
    }

    async fn stored(&self) -> Vec<String> {
        let mut stored = self.profiles.inner.blobs.list(BLOBS.prefix).await.unwrap();
        stored.sort_unstable();
        stored
    }
}

fn service(store: &Store, directory: &Path) -> Profiles {
    service_with(store, directory, LIMITS)
}

fn service_with(store: &Store, directory: &Path, limits: ProfileLimits) -> Profiles {
    let blobs = BlobStore::open_directory(&directory.join("blobs"), &[BLOBS]).unwrap();
    let spool = directory.join("spool");
    std::fs::create_dir_all(&spool).unwrap();
    Profiles::new(store.clone(), blobs, spool, limits, Shutdown::new())
}

/// Returns an archive of a user-data directory.
fn archive() -> Vec<u8> {
    TarEntry::packed(&[TarEntry::file("Local State", "{}")])
}

#[test]
fn only_digests_with_an_id_or_without_are_keys_of_archives() {
    let digest = "0f".repeat(32);
    let blob = new_blob(&digest);
    assert_ne!(blob, new_blob(&digest));
    for blob in [&digest, &blob] {
        assert_eq!(blob_of(&blob_key(blob)), Some(blob.as_str()));
    }
    for other in [
        format!("profiles/{digest}-"),
        format!("profiles/{}", blob.to_lowercase()),
        format!("profiles/{blob}-1"),
        format!("profiles/{}", &blob[1..]),
        format!("replays/{digest}"),
        format!("profiles/{}", digest.to_uppercase()),
        format!("profiles/{digest}0"),
        format!("profiles/a/{digest}"),
        "profiles/".to_owned(),
    ] {
        assert_eq!(blob_of(&other), None, "{other}");
    }
}

#[tokio::test]
async fn archives_without_a_version_are_collected() {
    let fixture = Fixture::new().await;
    let profile = fixture.profiles.create(&fixture.project, None).await;
    let profile = profile.unwrap().id;
    let (current, unused) = (fixture.put('a').await, fixture.put('b').await);
    fixture.publish(&profile, &current).await;
    let (before, after) = (
        Utc::now() - TimeDelta::hours(1),
        Utc::now() + TimeDelta::hours(1),
    );
    let collect = async |time| fixture.profiles.collect_older_than(time).await.unwrap();
    assert_eq!(collect(before).await, 0);
    assert_eq!(collect(after).await, 1);
    assert_eq!(fixture.stored().await, [blob_key(&current)]);
    assert!(!fixture.profiles.remove(&current).await.unwrap());
    assert!(fixture.profiles.remove(&unused).await.unwrap());
    let deleted = fixture.profiles.delete(&fixture.project, profile.as_str());
    deleted.await.unwrap();
    // The deletion removes its archive in the background.
    assert!(
        fixture
            .profiles
            .inner
            .shutdown
            .drain(Duration::from_secs(60))
            .await
    );
    assert_eq!(fixture.stored().await, Vec::<String>::new());
}

#[tokio::test]
async fn archive_of_a_save_or_load_in_progress_is_not_collected() {
    let fixture = Fixture::new().await;
    let (store, project) = (fixture.store(), &fixture.project);
    let profile = fixture.profiles.create(project, None).await.unwrap().id;
    let (loaded, next) = (fixture.put('a').await, fixture.put('b').await);
    fixture.publish(&profile, &loaded).await;
    let load = store.begin_profile_load("load".to_owned(), &profile, Utc::now());
    load.await.unwrap().unwrap();
    fixture.publish(&profile, &next).await;
    let saved = fixture.put('c').await;
    let begun =
        store.begin_profile_save("save".to_owned(), &profile, SaveSource::Upload, Utc::now());
    let BeginSave::Started(save) = begun.await.unwrap() else {
        panic!("not started");
    };
    assert!(store.set_save_blob(&save, &saved).await.unwrap());
    let later = Utc::now() + TimeDelta::hours(1);
    let collect = async || fixture.profiles.collect_older_than(later).await.unwrap();
    assert_eq!(collect().await, 0);
    for operation in ["load", "save"] {
        store.end_profile_operation(operation).await.unwrap();
        assert_eq!(collect().await, 1, "{operation}");
    }
    assert_eq!(fixture.stored().await, [blob_key(&next)]);
}

#[tokio::test]
async fn next_start_ends_operations_and_finishes_removals() {
    let fixture = Fixture::new().await;
    let (store, project) = (fixture.store(), &fixture.project);
    let profile = fixture.profiles.create(project, None).await.unwrap().id;
    let blob = fixture.put('a').await;
    let begun =
        store.begin_profile_save("save".to_owned(), &profile, SaveSource::Upload, Utc::now());
    begun.await.unwrap();
    assert!(store.begin_blob_removal(&blob, Utc::now()).await.unwrap());
    let next = store.begin_process(NewProcess::sample("b")).await.unwrap();
    let next = service(&next, fixture.directory.path());
    let live = next.inner.store.process().into_iter().collect();
    next.end_operations(&live).await.unwrap();
    assert_eq!(store.profile_operations().await.unwrap(), []);
    assert_eq!(store.blob_removals().await.unwrap(), []);
    assert_eq!(fixture.stored().await, Vec::<String>::new());
}

#[tokio::test]
async fn stalled_removal_does_not_remove_a_later_archive_with_the_same_content() {
    let fixture = Fixture::new().await;
    let Fixture {
        profiles, project, ..
    } = &fixture;
    let upload = async || {
        let profile = profiles.create(project, None).await.unwrap().id;
        let content = stream::iter([Ok(Bytes::from(archive()))]);
        profiles
            .upload(project, &profile, content, None)
            .await
            .unwrap();
        profiles.current_version(&profile).await.unwrap()
    };
    let removed = upload().await;
    let (blob, now) = (&removed.blob, Utc::now());
    let deleted = fixture
        .store()
        .delete_profile(project, &removed.profile_id, now);
    deleted.await.unwrap();
    // This process stalls after it has looked whether something needs the archive. Meanwhile the
    // same content is stored, while the removal is recorded and after another process has ended it.
    assert!(fixture.store().begin_blob_removal(blob, now).await.unwrap());
    let during = upload().await;
    let next = fixture.store().begin_process(NewProcess::sample("b")).await;
    let next = service(&next.unwrap(), fixture.directory.path());
    let live = next.inner.store.process().into_iter().collect();
    next.end_operations(&live).await.unwrap();
    assert_eq!(fixture.store().blob_removals().await.unwrap(), []);
    let after = upload().await;
    profiles.remove_stored(blob).await.unwrap();
    for version in [during, after] {
        assert_eq!(version.sha256(), removed.sha256());
        let stored = profiles.read(&version, 0..version.size_bytes).await;
        let stored: Vec<Bytes> = stored.unwrap().try_collect().await.unwrap();
        assert_eq!(stored.concat(), archive());
    }
    assert_eq!(fixture.stored().await.len(), 2);
}

#[tokio::test]
async fn very_compressible_archive_of_a_browser_is_saved_but_not_that_of_a_client() {
    let fixture = Fixture::new().await;
    let limits = ProfileLimits {
        archive_bytes: 1 << 20,
        ..LIMITS
    };
    let profiles = service_with(fixture.store(), fixture.directory.path(), limits);
    let profile = profiles.create(&fixture.project, None).await.unwrap().id;
    let zeros = TarEntry::file("Default/zeros", vec![0; 66 << 20]);
    let archive = TarEntry::packed(&[TarEntry::file("Local State", "{}"), zeros]);
    let content = || stream::iter([Ok(Bytes::from(archive.clone()))]);
    let refused = profiles
        .upload(&fixture.project, &profile, content(), None)
        .await;
    assert!(matches!(
        refused,
        Err(ProfileError::Inspect(InspectError::TooLarge(_)))
    ));
    let browser = BrowserId::generate();
    let pending = profiles
        .begin(&profile, SaveSource::Browser(&browser))
        .await;
    let received = profiles.receive_and_inspect(pending.unwrap(), content());
    let (pending, archive, inspecting) = received.await.ok().unwrap();
    let saved = profiles.store_in_background(pending, archive, inspecting);
    let saved = saved.await;
    assert_eq!(saved.unwrap().version, 1);
}

#[tokio::test]
async fn upload_beyond_the_limit_is_rejected_and_ends_the_save() {
    let fixture = Fixture::new().await;
    let profile = fixture.profiles.create(&fixture.project, None).await;
    let profile = profile.unwrap().id;
    let chunk = Bytes::from_static(&[0; 600]);
    let content = stream::iter([Ok(chunk.clone()), Ok(chunk)]);
    let refused = fixture
        .profiles
        .upload(&fixture.project, &profile, content, None)
        .await;
    assert!(matches!(refused, Err(ProfileError::TooLarge(1000))));
    let content = stream::iter([Err(ArchiveSourceError::Incomplete)]);
    let refused = fixture
        .profiles
        .upload(&fixture.project, &profile, content, None)
        .await;
    assert!(matches!(
        refused,
        Err(ProfileError::Source(ArchiveSourceError::Incomplete))
    ));
    assert_eq!(fixture.store().profile_operations().await.unwrap(), []);
    let spool = std::fs::read_dir(fixture.directory.path().join("spool"));
    assert_eq!(spool.unwrap().count(), 0);
}

#[tokio::test]
async fn uploads_of_a_project_are_limited_until_they_end() {
    let fixture = Fixture::new().await;
    let (profiles, project) = (&fixture.profiles, &fixture.project);
    let mut ids = Vec::new();
    for _ in 0..=MAX_PROJECT_UPLOAD_SPOOLS {
        ids.push(profiles.create(project, None).await.unwrap().id);
    }
    let last = ids.pop().unwrap();
    let mut uploads = Vec::new();
    for id in ids {
        let (profiles, project) = (profiles.clone(), project.clone());
        uploads.push(tokio::spawn(async move {
            let content = stream::pending();
            profiles.upload(&project, &id, content, None).await
        }));
    }
    while fixture.store().profile_operations().await.unwrap().len() < uploads.len() {
        tokio::task::yield_now().await;
    }
    let content = || stream::iter([Ok(Bytes::from(archive()))]);
    let refused = profiles.upload(project, &last, content(), None).await;
    assert!(matches!(refused, Err(ProfileError::Busy(_))));
    let ended = uploads.pop().unwrap();
    ended.abort();
    assert!(ended.await.unwrap_err().is_cancelled());
    let accepted = profiles.upload(project, &last, content(), None).await;
    assert_eq!(accepted.unwrap().version, 1);
}

#[tokio::test]
async fn decompressed_downloads_are_limited_until_they_end() {
    let fixture = Fixture::new().await;
    let (profiles, project) = (&fixture.profiles, &fixture.project);
    let profile = profiles.create(project, None).await.unwrap().id;
    fixture.publish(&profile, &fixture.put('a').await).await;
    let version = profiles.current_version(&profile).await.unwrap();
    let mut downloads = Vec::new();
    let read = async |project: &ProjectId| profiles.read_decompressed(project, &version).await;
    for _ in 0..MAX_PROJECT_DECOMPRESSED_DOWNLOADS {
        downloads.push(read(project).await.unwrap());
    }
    assert!(matches!(
        read(project).await.err(),
        Some(ProfileError::Busy(_))
    ));
    // Another project still may.
    assert!(read(&ProjectId::generate()).await.is_ok());
    downloads.pop();
    assert!(read(project).await.is_ok());
}
