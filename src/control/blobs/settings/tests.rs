use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use super::*;

/// Settings with an access key in a file.
fn with_key(store: &str) -> (tempfile::TempDir, BlobSettings) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let content = "aws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = canary-secret\n";
    fs::write(&file, content).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let settings = BlobSettings {
        blob_store: Some(store.to_owned()),
        blob_credentials_file: Some(file),
        ..none()
    };
    (directory, settings)
}

fn none() -> BlobSettings {
    BlobSettings {
        blob_store: None,
        blob_endpoint: None,
        blob_region: None,
        blob_addressing: None,
        blob_credentials_file: None,
        blob_allow_http: false,
    }
}

fn s3(settings: &BlobSettings) -> S3Config {
    match settings.check() {
        Ok(BlobConfig::S3(config)) => *config,
        other => panic!("{other:?}"),
    }
}

#[test]
fn store_names_a_bucket_and_a_prefix() {
    assert!(matches!(none().check(), Ok(BlobConfig::StateDir)));
    let (_directory, settings) = with_key("s3://replays-1/of/berth/");
    let config = s3(&settings);
    assert_eq!(
        (config.bucket.as_str(), config.prefix.as_ref()),
        ("replays-1", "of/berth")
    );
    assert_eq!(config.region, "us-east-1");
    assert_eq!(config.to_string(), "s3://replays-1/of/berth in us-east-1");
    assert!(!format!("{config:?}").contains("canary"));
    let (_directory, settings) = with_key("s3://replays-1");
    assert_eq!(s3(&settings).prefix.as_ref(), "");
    for store in [
        "replays",
        "https://replays",
        "s3://ab",
        "s3://Replays",
        "s3://key:canary@replays",
        "s3://replays.",
        "s3://replays/a//b",
        "s3://replays/../b",
        "s3://replays/b?canary",
        &format!("s3://replays/{}", "x".repeat(MAX_PREFIX + 1)),
    ] {
        let (_directory, settings) = with_key(store);
        let error = settings.check().unwrap_err();
        assert!(
            matches!(
                error,
                BlobSettingsError::Store | BlobSettingsError::Bucket | BlobSettingsError::Prefix
            ),
            "{store}: {error}"
        );
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}

#[test]
fn store_names_a_directory() {
    let settings = |store: &str| BlobSettings {
        blob_store: Some(store.to_owned()),
        ..none()
    };
    for (store, path) in [
        ("file:///mnt/replays", "/mnt/replays"),
        ("file:///mnt/a%20b", "/mnt/a b"),
    ] {
        let found = settings(store).check().unwrap();
        assert!(
            matches!(&found, BlobConfig::Shared(found) if found == Path::new(path)),
            "{found:?}"
        );
    }
    for store in [
        "",
        "/mnt/replays",
        "file:///",
        "file:replays",
        "file:/replays",
        "file://other/replays",
        "file:///replays?canary",
        "file:///replays#canary",
        "file:///replays%00",
    ] {
        let error = settings(store).check().unwrap_err();
        assert_eq!(error, BlobSettingsError::Store, "{store}");
    }
    let mut with_region = settings("file:///mnt/replays");
    with_region.blob_region = Some("eu-west-1".to_owned());
    let expected = BlobSettingsError::NoStore("blob-region");
    assert_eq!(with_region.check().unwrap_err(), expected);
}

#[test]
fn addressing_follows_from_the_endpoint_and_can_be_set() {
    let (_directory, mut settings) = with_key("s3://replays");
    assert!(s3(&settings).is_virtual_hosted);
    let (_other, dotted) = with_key("s3://replays.example");
    assert!(!s3(&dotted).is_virtual_hosted);
    settings.blob_endpoint = Some("https://s3.example:9000".to_owned());
    let config = s3(&settings);
    assert!(!config.is_virtual_hosted);
    assert_eq!(
        config.to_string(),
        "s3://replays at https://s3.example:9000"
    );
    settings.blob_addressing = Some(Addressing::Host);
    let config = s3(&settings);
    assert!(config.is_virtual_hosted);
    let endpoint = config.endpoint.unwrap();
    assert_eq!(endpoint.as_str(), "https://replays.s3.example:9000/");
    settings.blob_endpoint = Some("https://[::1]:9000".to_owned());
    assert_eq!(settings.check().unwrap_err(), BlobSettingsError::Addressing);
}

#[test]
fn endpoint_of_another_machine_must_be_https_unless_http_is_permitted() {
    let (_directory, mut settings) = with_key("s3://replays");
    for loopback in [
        "http://127.0.0.1:9000",
        "http://localhost",
        "http://[::1]:1",
    ] {
        settings.blob_endpoint = Some(loopback.to_owned());
        s3(&settings);
    }
    settings.blob_endpoint = Some("http://s3.example".to_owned());
    let host = "s3.example".to_owned();
    assert_eq!(
        settings.check().unwrap_err(),
        BlobSettingsError::Http { host }
    );
    settings.blob_allow_http = true;
    s3(&settings);
    for endpoint in [
        "s3.example",
        "ftp://s3.example",
        "https://canary@s3.example",
        "https://s3.example/path",
        "https://s3.example?canary",
    ] {
        settings.blob_endpoint = Some(endpoint.to_owned());
        let error = settings.check().unwrap_err();
        assert_eq!(error, BlobSettingsError::Endpoint, "{endpoint}");
    }
}

#[test]
fn incomplete_settings_are_errors() {
    let (directory, settings) = with_key("s3://replays");
    for region in ["", "eu west", &"x".repeat(MAX_REGION + 1)] {
        let settings = BlobSettings {
            blob_region: Some(region.to_owned()),
            ..settings.clone()
        };
        assert_eq!(settings.check().unwrap_err(), BlobSettingsError::Region);
    }
    let without_store = BlobSettings {
        blob_store: None,
        ..settings.clone()
    };
    let expected = BlobSettingsError::NoStore("blob-credentials-file");
    assert_eq!(without_store.check().unwrap_err(), expected);
    let without_key = BlobSettings {
        blob_credentials_file: None,
        ..settings.clone()
    };
    assert_eq!(
        without_key.check().unwrap_err(),
        BlobSettingsError::NoAccessKey
    );
    let file = directory.path().join("key");
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    let error = settings.check().unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
}
