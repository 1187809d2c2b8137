//! Secrets are used wherever the system accepts some, then searched for in all of its outputs, in
//! each form that an output may give them. The search is tested with the same secrets: each is
//! leaked into an output of each kind, and has to be found there.

mod core_file;
mod encodings;
mod negative_control;
mod outputs;
mod plant;
mod plant_logins;
mod plant_webhooks;
mod postgres_files;
mod replay_frames;
mod search;
mod types;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use self::{
    outputs::{ObservedClient, Outputs},
    plant::PUBLIC,
    postgres_files::PostgresFiles,
    search::{Finding, LeakSearch, OutputKind, kind_of_state_file},
};
use crate::support::{
    dev::{Dev, State, command},
    s3::S3Server,
};

/// The only files that may have secrets, readable by their owner alone, and these secrets.
const SECRET_FILES: [(&str, &str); 5] = [
    ("dev-key", "the first key"),
    ("fleet-ca.pem", "the key of the fleet"),
    ("secrets-key", "the key of stored secrets"),
    ("session-secret", "the signing secret"),
    ("token", "the agent's token"),
];

/// The kinds of output of a running server that have the name [`PUBLIC`].
const KINDS_WITH_NAME: [OutputKind; 6] = [
    OutputKind::Response,
    OutputKind::Event,
    OutputKind::Argument,
    OutputKind::Environment,
    OutputKind::AuditEntry,
    OutputKind::Log,
];

#[tokio::test]
async fn no_secret_leaks_into_any_output() {
    let mut s3 = S3Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let temporary = directory.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let state = State::new();
    let database = state.database.clone();
    let dev = start(state, directory.path(), &temporary, &s3).await;
    let outputs = Outputs::default();
    let client = ObservedClient {
        dev: &dev,
        outputs: &outputs,
    };
    let postgres = match &database {
        Some(database) => Some(PostgresFiles::of(database).await),
        None => None,
    };
    let secrets = plant::plant_all(&client, &mut s3).await;

    // The files, such as the log of SQLite, while browsers and control have them open.
    let mut search = LeakSearch::new(&secrets);
    search.outputs(&outputs);
    assert_no_leak_in_files(&mut search, &dev.state_dir(), &temporary);
    let state = dev.finish().await;
    outputs.add_log(&state.log());
    search.outputs(&outputs);
    assert_no_leak_in_files(&mut search, &state.path(), &temporary);
    if let Some(postgres) = &postgres {
        postgres.search(&mut search).await;
    }
    assert_no_leak(&search);
    assert_has_searched(&search, postgres.is_some());
    negative_control::assert_each_leak_is_found(&secrets).await;
}

/// Starts a server that reads as many of its secrets as possible, and logs all that it can.
async fn start(state: State, directory: &Path, temporary: &Path, s3: &S3Server) -> Dev {
    let metrics_token = directory.join("metrics-token");
    fs::write(&metrics_token, plant::METRICS_TOKEN).unwrap();
    fs::set_permissions(&metrics_token, fs::Permissions::from_mode(0o600)).unwrap();
    let options = [
        "--metrics-token-file",
        metrics_token.to_str().unwrap(),
        "--log",
        "trace",
        "--log-format",
        "json",
    ];
    let mut command = command(&state.path(), &options);
    command.envs(state.variables()).envs(s3.variables());
    command.env("TMPDIR", temporary);
    Dev::run(state, command).await
}

/// Searches the files of a server, and asserts that only those for secrets have some.
fn assert_no_leak_in_files(search: &mut LeakSearch, state_dir: &Path, temporary: &Path) {
    search.files(state_dir, kind_of_state_file);
    search.files(temporary, |_| Some(OutputKind::TemporaryFile));
    assert_no_leak(search);
}

/// Asserts that secrets were found in files for them only, and that these are private.
fn assert_no_leak(search: &LeakSearch) {
    let leaks = search.findings().filter(|finding| !is_expected(finding));
    let leaks: Vec<_> = leaks.map(ToString::to_string).collect();
    assert!(leaks.is_empty(), "{}", leaks.join("\n"));
}

fn is_expected(finding: &Finding) -> bool {
    let path = PathBuf::from(&finding.source);
    let name = path.file_name().unwrap_or_default();
    let is_for = |(file, secret): &(&str, &str)| {
        // It may have been removed with its host.
        let mode = fs::metadata(&path).map_or(0o600, |file| file.permissions().mode() & 0o777);
        name == *file && finding.secret.starts_with(secret) && mode == 0o600
    };
    let is_public = finding.secret == "a public name";
    is_public || finding.kind == OutputKind::StateFile && SECRET_FILES.iter().any(is_for)
}

/// Asserts that the search has reached what it should: where [`PUBLIC`] is, it was found.
fn assert_has_searched(search: &LeakSearch, is_postgres: bool) {
    let in_database = match is_postgres {
        true => [OutputKind::PostgresFile, OutputKind::PostgresLog],
        false => [OutputKind::SqliteFile, OutputKind::SqliteLog],
    };
    for kind in KINDS_WITH_NAME.into_iter().chain(in_database) {
        let found = search.found_in(kind);
        assert!(found.contains("a public name"), "{PUBLIC} in no {kind:?}");
    }
    for kind in [
        OutputKind::ErrorResponse,
        OutputKind::Metric,
        OutputKind::Url,
        OutputKind::ReplayName,
        OutputKind::StateFile,
    ] {
        assert!(search.searched_bytes(kind) > 0, "{kind:?}");
    }
    let panics = search.searched_bytes(OutputKind::PanicMessage);
    assert_eq!(panics, 0, "a thread has panicked: see the log");
}
