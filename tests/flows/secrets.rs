//! Secrets: canary values are used wherever possible, then searched for in all output.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use berth::system::identity::{HostKey, TokenAudience};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    dev::{Answer, Dev, State},
    fleet_host::{join_token, register, registration},
    login_site::LoginSite,
    provider_server::{self, ProviderServer},
    replays::add_finished,
    s3::{self, S3Server},
    wait::until,
};

/// Canaries in the requests of a client.
const CODE: &str = "canary-of-the-code";
const OUTPUT: &str = "canary-of-the-output";
const METRICS_TOKEN: &str = "canary-of-the-metrics-token";
const HEADER: &str = "canary-of-a-foreign-token";
const QUERY: &str = "canary-of-the-query";
const TYPED: &str = "canary-of-the-keyboard";
const COPIED: &str = "canary-of-the-clipboard";
const COOKIE: &str = "canary-of-a-cookie";
const USER_NAME: &str = "canary-of-a-user-name";
const PASSWORD: &str = "canary-of-a-password";
const TOTP_SECRET: &str = "CANARYOFASEEDCANARYOFASEED234567";

/// The only files that may hold a secret, readable by their owner alone.
const SECRET_FILES: [&str; 5] = [
    "dev-key",
    "fleet-ca.pem",
    "secrets-key",
    "session-secret",
    "token",
];

struct Secret {
    name: &'static str,
    text: String,
}

fn secret(name: &'static str, text: &str) -> Secret {
    assert!(text.len() >= 16, "{name} is too short to search for");
    Secret {
        name,
        text: text.to_owned(),
    }
}

#[tokio::test]
async fn no_secret_leaks_into_responses_logs_files_or_command_lines() {
    let token_directory = tempfile::tempdir().unwrap();
    let metrics_file = token_directory.path().join("metrics-token");
    fs::write(&metrics_file, METRICS_TOKEN).unwrap();
    fs::set_permissions(&metrics_file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut s3 = S3Server::start().await;
    let options = [
        "--metrics-token-file",
        metrics_file.to_str().unwrap(),
        "--log",
        "trace,hyper=info,sqlx=debug",
        "--log-format",
        "json",
    ];
    let dev = Dev::start_with_variables(State::new(), &options, s3.variables()).await;
    let made = dev
        .post("/org/api_keys", json!({"name": "made"}))
        .await
        .body;
    let browser = dev
        .post("/browsers", json!({"timeout_seconds": 600}))
        .await
        .body;
    let id = text(&browser["session_id"]);
    let token_in = |field: &str| {
        let url = text(&browser[field]);
        url.split_once("jwt=").expect("a token").1.to_owned()
    };
    let jwt = token_in("cdp_ws_url");
    let live = token_in("browser_live_view_url");
    let view = token_in("browser_live_view_read_only_url");
    let directory = dev.host_dir(&id);
    let agent_token = fs::read_to_string(directory.join("token")).unwrap();
    let session_secret = fs::read_to_string(dev.state_dir().join("session-secret")).unwrap();

    let mut responses = Vec::new();
    let run =
        json!({"code": format!("/* {CODE} */ console.log('{OUTPUT}'); throw new Error('no')")});
    let execute = format!("/browsers/{id}/automation/execute");
    dev.post(&execute, run).await;
    responses.extend(use_keyboard_and_clipboard(&dev, &id).await);
    let with_jwt = format!("/browsers/{id}/json/version?jwt={jwt}");
    Answer::of(dev.anonymous(Method::GET, &with_jwt)).await;
    for page in [
        format!("/browsers/{id}/live?jwt={live}"),
        format!("/browsers/{id}/live/view?jwt={view}"),
    ] {
        let request = dev.anonymous(Method::GET, &page);
        let request = request.header("Referer", format!("{}{page}", dev.base_url));
        responses.push(request.send().await.unwrap().text().await.unwrap());
    }
    for (method, path) in [
        (Method::GET, "/browsers".to_owned()),
        (Method::GET, format!("/browsers/{id}")),
        (Method::POST, execute),
        (Method::GET, format!("/browsers/{id}/json/version")),
        (Method::GET, format!("/browsers/{id}/nowhere?jwt={jwt}")),
        (
            Method::GET,
            format!("/browsers/{id}/cdp?jwt={jwt}x&q={QUERY}"),
        ),
        (Method::GET, format!("/nowhere?q={QUERY}")),
    ] {
        let request = dev.anonymous(method, &path).bearer_auth(HEADER);
        responses.push(Answer::of(request).await.body.to_string());
    }
    responses.push(
        dev.post("/browsers", json!({"headless": QUERY, "start_url": 7}))
            .await
            .body
            .to_string(),
    );
    responses.push(dev.get("/org/api_keys").await.body.to_string());
    let join_token = join_token(&dev, json!({"uses": 2})).await;
    let host_token = join_fleet(&dev, &join_token, &mut responses).await;
    let authority = fs::read_to_string(dev.state_dir().join("fleet-ca.pem")).unwrap();
    let authority_key = authority.lines().nth(1).unwrap();
    responses.extend(search_audit_log(&dev, &jwt).await);
    let leased = use_pool_and_profile(&dev, &mut responses).await;
    let code = use_credentials(&dev, &mut responses).await;
    use_provider_and_fill(&dev, &mut responses).await;
    let secrets_key = fs::read_to_string(dev.state_dir().join("secrets-key")).unwrap();
    responses.push(use_blob_store(&dev, &mut s3).await);
    for credential in [&dev.api_key, METRICS_TOKEN] {
        let metrics = dev.anonymous(Method::GET, "/metrics");
        let metrics = metrics.bearer_auth(credential).send().await.unwrap();
        responses.push(metrics.text().await.unwrap());
    }

    let database_url = dev
        .variables()
        .map_or("none, with SQLite".to_owned(), |it| it.1);
    let database_password = dev
        .postgres()
        .map_or("none, with SQLite", |database| &database.password);
    let secrets = [
        secret("the database's URL", &database_url),
        secret("the database's password", database_password),
        secret("the first key", &dev.api_key),
        secret("a created key", &text(&made["key"])),
        secret("the browser's token", &jwt),
        secret("the live view's token", &live),
        secret("the read-only live view's token", &view),
        secret("the token of a leased browser", &leased),
        secret("a cookie of a saved profile", COOKIE),
        secret("a user name", USER_NAME),
        secret("a password", PASSWORD),
        secret("the secret of one-time codes", TOTP_SECRET),
        secret("the key of stored secrets", secrets_key.trim()),
        secret("the token of a provider", provider_server::TOKEN),
        secret("a user name of a provider", provider_server::USER_NAME),
        secret("a password of a provider", provider_server::PASSWORD),
        secret("the metrics token", METRICS_TOKEN),
        secret("the id of the blob store's key", s3::ACCESS_KEY_ID),
        secret("the blob store's key", s3::SECRET_ACCESS_KEY),
        secret("the blob store's session token", s3::SESSION_TOKEN),
        secret("the agent's token", agent_token.trim()),
        secret("the signing secret", session_secret.trim()),
        secret("a join token", &join_token),
        secret("the token of a host", &host_token),
        secret("the key of the fleet", authority_key),
        secret("the code", CODE),
        secret("the output", OUTPUT),
        secret("a foreign token", HEADER),
        secret("a query", QUERY),
        secret("the typed text", TYPED),
        secret("the copied text", COPIED),
    ];
    let command_lines: Vec<String> = dev
        .descendants()
        .into_iter()
        .map(|(_, command)| command)
        .collect();
    assert!(
        command_lines.len() >= 3,
        "agent, Chromium and workers: {command_lines:?}"
    );
    for secret in &secrets {
        let found = |output: &str| output.contains(&secret.text);
        assert!(
            !command_lines.iter().any(|line| found(line)),
            "{} in an argv",
            secret.name
        );
        assert!(
            !responses.iter().any(|response| found(response)),
            "{} in a response",
            secret.name
        );
    }
    let state = dev.finish().await;
    let log = fs::read_to_string(state.log()).unwrap();
    assert!(
        log.contains("request completed"),
        "the log has no request: {log}"
    );
    let digits = |line: &str| {
        line.split(|c: char| !c.is_ascii_digit())
            .any(|it| it == code)
    };
    assert!(!log.lines().any(digits), "a one-time code in the log");
    for secret in &secrets {
        if let Some(line) = log.lines().find(|line| line.contains(&secret.text)) {
            panic!("{} in the log: {line}", secret.name);
        }
        for file in files(&state.path()) {
            let holds = contains(&fs::read(&file).unwrap(), secret.text.as_bytes());
            let name = file.file_name().unwrap().to_str().unwrap();
            assert!(
                !holds || SECRET_FILES.contains(&name),
                "{} in {}",
                secret.name,
                file.display()
            );
            let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
            assert!(
                !holds || mode == 0o600,
                "{} has mode {mode:o}",
                file.display()
            );
        }
    }
}

/// Types and copies, with valid and invalid requests; returns the responses that must not contain
/// the canaries.
async fn use_keyboard_and_clipboard(dev: &Dev, id: &str) -> Vec<String> {
    let computer = format!("/browsers/{id}/computer");
    let mut responses = Vec::new();
    for (route, body, status) in [
        ("type", json!({"text": TYPED}), 200),
        ("type", json!({"text": TYPED, "delay": -1}), 400),
        (
            "batch",
            json!({"actions": [{"type": "type_text", "type_text": {"text": TYPED}}, {"type": TYPED}]}),
            400,
        ),
        ("press_key", json!({"keys": [TYPED]}), 400),
        ("clipboard/write", json!({"text": COPIED}), 200),
        ("clipboard/write", json!({"text": [COPIED]}), 400),
    ] {
        let response = dev.post(&format!("{computer}/{route}"), body).await;
        assert_eq!(response.status, status, "{route}: {}", response.body);
        responses.push(response.body.to_string());
    }
    let read = dev
        .post(&format!("{computer}/clipboard/read"), json!({}))
        .await;
    assert_eq!(read.body, json!({"text": COPIED}));
    responses
}

/// Registers a host, with valid and invalid requests. Returns the token of the host.
async fn join_fleet(dev: &Dev, join_token: &str, responses: &mut Vec<String>) -> String {
    let key = HostKey::generate().unwrap();
    let host_token = key.token(TokenAudience::Registration).unwrap();
    for (token, request, status) in [
        (join_token, registration(&key), 201),
        (join_token, registration(&key), 409),
        (join_token, json!({"address": join_token}), 400),
        (&host_token, registration(&key), 201),
        (&host_token, json!({"boot_id": host_token}), 400),
    ] {
        let response = register(dev, token, &request).await;
        assert_eq!(response.status, status, "{}", response.body);
        responses.push(response.body.to_string());
    }
    for path in ["/fleet/join_tokens", "/fleet/hosts"] {
        responses.push(dev.get(path).await.body.to_string());
    }
    host_token
}

/// Stores a credential, with valid and invalid requests. Returns its one-time code.
async fn use_credentials(dev: &Dev, responses: &mut Vec<String>) -> String {
    let values = json!({"username": USER_NAME, "password": PASSWORD});
    let credential = json!({"name": "shop", "domain": "shop.example", "values": values});
    let options = json!({"totp_secret": TOTP_SECRET, "totp_digits": 8, "totp_period": 300});
    for (path, body, status) in [
        ("/credentials", credential.clone(), 201),
        ("/credentials", credential, 409),
        (
            "/credentials",
            json!({"name": PASSWORD, "domain": [PASSWORD], "values": {"a": [PASSWORD]}}),
            400,
        ),
        (
            "/credentials",
            json!({"values": PASSWORD, "totp_secret": format!("{TOTP_SECRET}1")}),
            400,
        ),
    ] {
        let response = dev.post(path, body).await;
        assert_eq!(response.status, status, "{path}: {}", response.body);
        responses.push(response.body.to_string());
    }
    let updated = dev.patch("/credentials/shop", options).await;
    assert_eq!(updated.status, 200, "{}", updated.body);
    let uri = format!("otpauth://totp/me?secret={TOTP_SECRET}&digits=20");
    let refused = dev
        .patch("/credentials/shop", json!({"totp_secret": uri}))
        .await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    responses.push(refused.body.to_string());
    for path in ["/credentials", "/credentials/shop"] {
        responses.push(dev.get(path).await.body.to_string());
    }
    text(&dev.get("/credentials/shop/totp-code").await.body["code"])
}

/// Fills pages with a stored credential and with an item of a provider, with valid and invalid
/// requests.
async fn use_provider_and_fill(dev: &Dev, responses: &mut Vec<String>) {
    let site = LoginSite::serve().await;
    let server = ProviderServer::start_for(&site.url).await;
    let provider = json!({"name": "vault", "provider_type": "vendorpassword", "token": provider_server::TOKEN, "base_url": server.base_url});
    let created = dev
        .post("/org/credential_providers", provider.clone())
        .await;
    assert_eq!(created.status, 201, "{}", created.body);
    let path = format!("/org/credential_providers/{}", text(&created.body["id"]));
    let mut unusable = provider.clone();
    unusable["base_url"] = json!(provider_server::TOKEN);
    let refused = dev.post("/org/credential_providers", unusable).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    let tested = dev.post(&format!("{path}/test"), json!({})).await;
    assert_eq!(tested.body["success"], true, "{}", tested.body);
    let items = dev.get(&format!("{path}/items")).await;
    assert_eq!(items.status, 200, "{}", items.body);
    let start_url = format!("{}/login", site.url);
    let browser = dev
        .browser(json!({"headless": true, "start_url": start_url}))
        .await;
    let id = text(&browser["session_id"]);
    let fill = format!("/browsers/{id}/credentials/fill");
    let localhost = json!(["localhost"]);
    responses.extend([created, refused, tested, items].map(|it| it.body.to_string()));
    for (request, status) in [
        (json!({"credential": "shop"}), 403),
        (
            json!({"credential": "shop", "fields": [{"name": PASSWORD}]}),
            400,
        ),
        (
            json!({"credential": "shop", "allowed_domains": localhost}),
            200,
        ),
        (json!({"provider": "vault", "path": "Team/Shop"}), 200),
    ] {
        let filled = dev.post(&fill, request).await;
        assert_eq!(filled.status, status, "{}", filled.body);
        responses.push(filled.body.to_string());
    }
    // A token that the provider refuses.
    server.fail_with(StatusCode::UNAUTHORIZED);
    let refused = dev
        .post(&fill, json!({"provider": "vault", "path": "Team/Shop"}))
        .await;
    responses.push(refused.body.to_string());
    let deleted = dev.delete(&format!("/browsers/{id}")).await;
    assert_eq!(deleted.status, 204, "{}", deleted.body);
}

/// Leases a browser of a pool, saves it with a cookie to a profile, and gives it back, with valid
/// and invalid requests. Returns the token of the browser.
async fn use_pool_and_profile(dev: &Dev, responses: &mut Vec<String>) -> String {
    let pool = json!({"name": "pool", "size": 1, "headless": true, "fill_rate_per_minute": 10_000});
    let created = dev.post("/browser_pools", pool).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let leased = dev.post("/browser_pools/pool/acquire", json!({})).await;
    assert_eq!(leased.status, 200, "{}", leased.body);
    let id = text(&leased.body["session_id"]);
    let token = text(&leased.body["cdp_ws_url"]);
    let token = token.split_once("jwt=").expect("a token").1.to_owned();
    let code = format!(
        "await context.addCookies([{{name: 'login', value: '{COOKIE}',
            url: 'https://shop.example/', expires: 4102444800}}])"
    );
    let execute = format!("/browsers/{id}/automation/execute");
    let added = dev.post(&execute, json!({ "code": code })).await;
    assert_eq!(added.body["success"], true, "{}", added.body);
    let save = format!("/browsers/{id}/profiles");
    for (path, body, status) in [
        (save.as_str(), json!({"name": "saved"}), 201),
        (&save, json!({"name": [COOKIE]}), 400),
        (
            "/browser_pools/pool/acquire",
            json!({"tags": [COOKIE]}),
            400,
        ),
        (
            "/browser_pools/pool/release",
            json!({"session_id": token}),
            400,
        ),
        (
            "/browser_pools/pool/release",
            json!({"session_id": id}),
            204,
        ),
    ] {
        let response = dev.post(path, body).await;
        assert_eq!(response.status, status, "{path}: {}", response.body);
        responses.push(response.body.to_string());
    }
    let upload = dev.request(Method::PUT, "/profiles/saved/upload");
    let upload = Answer::of(upload.body(COOKIE)).await;
    assert_eq!(upload.status, 400, "{}", upload.body);
    responses.push(upload.body.to_string());
    for path in [
        "/browser_pools/pool",
        "/profiles/saved",
        "/profiles/saved/versions",
    ] {
        let found = dev.get(path).await;
        assert_eq!(found.status, 200, "{path}: {}", found.body);
        responses.push(found.body.to_string());
    }
    let deleted = dev.delete("/browser_pools/pool").await;
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    responses.extend(load_profile(dev).await);
    token
}

/// Loads the saved profile into browsers, when one is created and while one runs, saves it at the
/// end of one, and downloads it. Returns the responses.
async fn load_profile(dev: &Dev) -> [String; 4] {
    let selection = json!({"name": "saved", "save_changes": true});
    let saving = dev.browser(json!({"profile": selection})).await;
    assert_has_cookie(dev, &text(&saving["session_id"])).await;
    let path = format!("/browsers/{}", text(&saving["session_id"]));
    assert_eq!(dev.delete(&path).await.status, 204);
    let profile = dev.get("/profiles/saved").await.body;
    assert_eq!(profile["version"], 2, "{profile}");
    let archive = dev.request(Method::GET, "/profiles/saved/download");
    let archive = archive.send().await.unwrap();
    assert_eq!(archive.status(), 200);
    let headers = format!("{:?}", archive.headers());
    assert!(archive.bytes().await.unwrap().len() > 1000);
    let running = dev.browser(json!({})).await;
    let path = format!("/browsers/{}", text(&running["session_id"]));
    let body = json!({"profile": {"name": "saved"}});
    let loaded = dev.patch(&path, body).await;
    assert_eq!(loaded.status, 200, "{}", loaded.body);
    assert_has_cookie(dev, &text(&running["session_id"])).await;
    assert_eq!(dev.delete(&path).await.status, 204);
    [
        saving.to_string(),
        profile.to_string(),
        headers,
        loaded.body.to_string(),
    ]
}

/// Asserts that a browser has the planted cookie, without having it in the response.
async fn assert_has_cookie(dev: &Dev, id: &str) {
    let code = format!("return (await context.cookies()).some(it => it.value === '{COOKIE}')");
    let execute = format!("/browsers/{id}/automation/execute");
    let found = dev.post(&execute, json!({ "code": code })).await.body;
    assert_eq!(found["result"], true, "{found}");
}

/// Stores a replay in the bucket, reads it, and fails to after the end of the service. Returns the
/// error.
async fn use_blob_store(dev: &Dev, s3: &mut S3Server) -> String {
    let browser = dev.browser(json!({})).await;
    let replay = add_finished(dev, &browser, b"recorded");
    let base = format!("/browsers/{}", text(&browser["session_id"]));
    assert_eq!(dev.delete(&base).await.status, 204);
    let path = format!("{base}/replays/{replay}");
    until("the replay in the bucket", async || {
        let file = dev.request(Method::GET, &path).send().await.unwrap();
        (file.text().await.unwrap() == "recorded").then_some(())
    })
    .await;
    s3.kill().await;
    let failed = dev.get(&path).await;
    failed.assert_error(503, "unavailable");
    failed.body.to_string()
}

/// Plants a key and a token in the path and headers of requests, and returns the audit log with
/// these requests, searched and exported.
async fn search_audit_log(dev: &Dev, jwt: &str) -> [String; 2] {
    let path = format!("/org/api_keys/{}", dev.api_key);
    dev.delete(&path).await.assert_error(404, "not_found");
    let path = format!("/browsers/{jwt}/process/exec?q={QUERY}&jwt={jwt}");
    let request = dev.anonymous(Method::POST, &path);
    let request = request.header("User-Agent", format!("x {jwt}"));
    Answer::of(request).await.assert_error(401, "unauthorized");
    let window = "start=2020-01-01T00:00:00Z&end=2100-01-01T00:00:00Z";
    let path = format!("/audit-logs?{window}&limit=100");
    let listed = until("the requests in the audit log", async || {
        let listed = dev.get(&path).await.body;
        let redacted = |path: &str| listed.as_array().unwrap().iter().any(|e| e["path"] == path);
        let is_complete =
            redacted("/org/api_keys/[redacted]") && redacted("/browsers/[redacted]/process/exec");
        is_complete.then(|| listed.to_string())
    })
    .await;
    let path = format!("/audit-logs/export/chunk?{window}&format=jsonl");
    let exported = dev.request(Method::GET, &path).send().await.unwrap();
    [listed, exported.text().await.unwrap()]
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files(&entry.path())),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}
