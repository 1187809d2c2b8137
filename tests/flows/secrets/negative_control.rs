//! Leaks each secret into an output of each kind, in the way in which the system writes it, and
//! asserts that the search finds all of them.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use axum::{
    Json, Router,
    extract::State as Extracted,
    response::{IntoResponse, Response},
    routing::get,
};
use berth::{
    cli::{LogFormat, init_logging},
    http::{ApiError, SseEvent, sse_response},
    shutdown::Shutdown,
};
use metrics_exporter_prometheus::PrometheusBuilder;
use nix::unistd::{dup, dup2_stderr};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use sqlx::{
    Connection, PgConnection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};
use tokio::net::TcpListener;

use super::{
    encodings::PlantedSecret,
    outputs::Outputs,
    postgres_files::PostgresFiles,
    search::{LeakSearch, OutputKind, kind_of_state_file},
};
use crate::support::{login_site::LoginSite, postgres::PostgresDatabase, processes::Process};

/// Asserts that the search finds each secret in an output of each kind.
pub(super) async fn assert_each_leak_is_found(secrets: &[PlantedSecret]) {
    let directory = tempfile::tempdir().unwrap();
    let (outputs, mut search) = (Outputs::default(), LeakSearch::new(secrets));
    let mut kinds = leak_to_files(secrets, directory.path(), &mut search);
    kinds.extend(leak_to_log(secrets, directory.path(), &outputs));
    kinds.extend(leak_to_process(
        secrets,
        directory.path(),
        &outputs,
        &mut search,
    ));
    kinds.extend(leak_to_responses(secrets, &outputs).await);
    kinds.extend(leak_to_urls(secrets, &outputs).await);
    search.outputs(&outputs);
    kinds.extend(leak_to_sqlite(secrets, directory.path(), &mut search).await);
    if let Some(database) = PostgresDatabase::create() {
        kinds.extend(leak_to_postgres(secrets, &database, &mut search).await);
    }
    let names: BTreeSet<&str> = secrets.iter().map(|secret| secret.name.as_str()).collect();
    assert!(kinds.len() >= 16, "{kinds:?}");
    for kind in kinds {
        let missing: Vec<_> = names.difference(&search.found_in(kind)).copied().collect();
        assert!(missing.is_empty(), "not found in {kind:?}: {missing:?}");
    }
}

fn leak_to_files(
    secrets: &[PlantedSecret],
    directory: &Path,
    search: &mut LeakSearch,
) -> Vec<OutputKind> {
    let [state, temporary] = ["state", "tmp"].map(|name| directory.join(name));
    fs::create_dir_all(state.join("hosts/1")).unwrap();
    fs::create_dir(&temporary).unwrap();
    for (number, secret) in secrets.iter().enumerate() {
        let file = state.join(format!("hosts/1/{number}"));
        fs::write(file, &secret.bytes).unwrap();
        let file = tempfile::Builder::new().tempfile_in(&temporary);
        let (mut file, _) = file.unwrap().keep().unwrap();
        file.write_all(&secret.bytes).unwrap();
    }
    search.files(&state, kind_of_state_file);
    search.files(&temporary, |_| Some(OutputKind::TemporaryFile));
    vec![OutputKind::StateFile, OutputKind::TemporaryFile]
}

/// Logs the secrets, and panics with them, as the programs do.
fn leak_to_log(secrets: &[PlantedSecret], directory: &Path, outputs: &Outputs) -> Vec<OutputKind> {
    let path = directory.join("log");
    let stderr = dup(io::stderr()).unwrap();
    dup2_stderr(File::create(&path).unwrap()).unwrap();
    let panic_hook = std::panic::take_hook();
    let log = init_logging("trace", LogFormat::Json, None).unwrap();
    for secret in secrets {
        let text = secret.printable();
        tracing::trace!(value = text, "a value");
        let panicking = thread::spawn(move || panic!("cannot use {text}"));
        assert!(panicking.join().is_err());
    }
    // The thread of the log writes the rest.
    drop(log);
    std::panic::set_hook(panic_hook);
    dup2_stderr(stderr).unwrap();
    outputs.add_log(&path);
    vec![OutputKind::Log, OutputKind::PanicMessage]
}

/// Starts a process with the secrets in its arguments and its environment, and so in its memory.
fn leak_to_process(
    secrets: &[PlantedSecret],
    directory: &Path,
    outputs: &Outputs,
    search: &mut LeakSearch,
) -> Vec<OutputKind> {
    let texts: Vec<String> = secrets.iter().map(PlantedSecret::printable).collect();
    let variables = texts.iter().enumerate();
    let variables = variables.map(|(number, text)| (format!("LEAK_{number}"), text));
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo runs; read line", "sh"])
        .args(&texts);
    command.envs(variables).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    // Until then it may still have the arguments of this process.
    let mut runs = [0; "runs\n".len()];
    let stdout = child.stdout.as_mut().unwrap();
    stdout.read_exact(&mut runs).unwrap();
    outputs.add_process(&Process {
        pid: child.id(),
        command: "sh".to_owned(),
    });
    let core = directory.join("core");
    fs::create_dir(&core).unwrap();
    write_core_file(&child, &core.join(format!("core.{}", child.id())));
    search.files(&core, |_| Some(OutputKind::CoreFile));
    child.kill().unwrap();
    child.wait().unwrap();
    vec![
        OutputKind::Argument,
        OutputKind::Environment,
        OutputKind::CoreFile,
    ]
}

/// Writes a process's memory to a file, as the kernel does where its settings have it do so.
fn write_core_file(child: &Child, path: &Path) {
    let maps = fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
    let mut memory = File::open(format!("/proc/{}/mem", child.id())).unwrap();
    let mut file = File::create(path).unwrap();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
        memory.seek(SeekFrom::Start(start)).unwrap();
        let mut part = (&mut memory).take(end - start);
        io::copy(&mut part, &mut file).unwrap();
    }
}

/// Serves the secrets in responses of all kinds, and reads these.
async fn leak_to_responses(secrets: &[PlantedSecret], outputs: &Outputs) -> Vec<OutputKind> {
    let texts: Vec<String> = secrets.iter().map(PlantedSecret::printable).collect();
    let router = Router::new()
        .route("/browsers", get(list))
        .route("/error", get(fail))
        .route("/events", get(stream))
        .route("/metrics", get(count))
        .route("/audit-logs", get(audit))
        .route("/replays", get(name_replays))
        .with_state(texts);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let http = reqwest::Client::new();
    let kinds = [
        ("browsers", OutputKind::Response),
        ("error", OutputKind::ErrorResponse),
        ("events", OutputKind::Event),
        ("metrics", OutputKind::Metric),
        ("audit-logs", OutputKind::AuditEntry),
        ("replays", OutputKind::ReplayName),
    ];
    for (path, kind) in kinds {
        let by_status = [OutputKind::Response, OutputKind::ErrorResponse].contains(&kind);
        let request = http.get(format!("{url}/{path}"));
        outputs.fetch((!by_status).then_some(kind), request).await;
    }
    server.abort();
    kinds.map(|(_, kind)| kind).into()
}

type Texts = Extracted<Vec<String>>;

async fn list(Extracted(texts): Texts) -> Json<Value> {
    let browsers = texts.iter().map(|text| json!({ "name": text }));
    Json(browsers.collect())
}

async fn fail(Extracted(texts): Texts) -> ApiError {
    let message = texts.join(", ");
    ApiError::bad_request(message)
}

async fn stream(Extracted(texts): Texts) -> Response {
    let events = texts.into_iter().zip(1..);
    let events = events.map(|(text, id)| SseEvent {
        id: Some(id.to_string()),
        data: json!({"event": "log", "message": text}).to_string(),
    });
    sse_response(futures::stream::iter(events), &Shutdown::new())
}

async fn count(Extracted(texts): Texts) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        for text in texts {
            metrics::counter!("berth_leaks_total", "value" => text).increment(1);
        }
    });
    recorder.handle().render()
}

async fn audit(Extracted(texts): Texts) -> Json<Value> {
    let path = |text: &String| format!("/browsers/{}", utf8_percent_encode(text, NON_ALPHANUMERIC));
    let entries = texts.iter().map(|text| json!({ "path": path(text) }));
    Json(entries.collect())
}

async fn name_replays(Extracted(texts): Texts) -> Response {
    let name = |text: &String| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let names: Vec<_> = texts.iter().map(name).collect();
    let attachment = format!("attachment; filename*=UTF-8''{}.mp4", names.join("-"));
    ([("content-disposition", attachment)], "a video").into_response()
}

async fn leak_to_urls(secrets: &[PlantedSecret], outputs: &Outputs) -> Vec<OutputKind> {
    let site = LoginSite::serve().await;
    for secret in secrets {
        let query = [("value", secret.printable())];
        let url = url::Url::parse_with_params(&format!("{}/login", site.url), query).unwrap();
        reqwest::get(url).await.unwrap();
    }
    outputs.add_urls("the site", &site.urls);
    vec![OutputKind::Url]
}

/// Stores the secrets in a table. They are in the log first, and in the file once that is copied.
async fn leak_to_sqlite(
    secrets: &[PlantedSecret],
    directory: &Path,
    search: &mut LeakSearch,
) -> Vec<OutputKind> {
    let directory = directory.join("sqlite");
    fs::create_dir(&directory).unwrap();
    let options = SqliteConnectOptions::new()
        .filename(directory.join("berth.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal);
    let mut database = SqliteConnection::connect_with(&options).await.unwrap();
    let create = sqlx::query("CREATE TABLE leaks (value BLOB)");
    create.execute(&mut database).await.unwrap();
    for secret in secrets {
        let insert = sqlx::query("INSERT INTO leaks VALUES (?)").bind(&secret.bytes);
        insert.execute(&mut database).await.unwrap();
    }
    search.files(&directory, kind_of_state_file);
    assert!(search.found_in(OutputKind::SqliteFile).is_empty());
    let copy = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)");
    copy.execute(&mut database).await.unwrap();
    search.files(&directory, kind_of_state_file);
    database.close().await.unwrap();
    vec![OutputKind::SqliteFile, OutputKind::SqliteLog]
}

async fn leak_to_postgres(
    secrets: &[PlantedSecret],
    database: &PostgresDatabase,
    search: &mut LeakSearch,
) -> Vec<OutputKind> {
    let files = PostgresFiles::of(database).await;
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    let create = sqlx::query("CREATE TABLE leaks (value bytea)");
    create.execute(&mut connection).await.unwrap();
    for secret in secrets {
        let insert = sqlx::query("INSERT INTO leaks VALUES ($1)").bind(&secret.bytes);
        insert.execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    files.search(search).await;
    vec![OutputKind::PostgresFile, OutputKind::PostgresLog]
}
