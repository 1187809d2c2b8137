//! Gives the system under test secrets in every way that it accepts some, with valid and invalid
//! requests, and records its outputs meanwhile.

use std::fs;

use berth::{
    api::credentials::TotpSecret,
    system::identity::{HostKey, TokenAudience},
};
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use reqwest::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::{
    encodings::{PlantedSecret, from_hex},
    outputs::ObservedClient,
    plant_logins::use_logins,
    plant_webhooks::use_webhooks,
    search::OutputKind,
};
use crate::support::{
    events::Events,
    fleet_host::{join_token, registration},
    login_site::LoginSite,
    provider_server::{self, ProviderServer},
    replays::add_finished,
    s3::{self, S3Server},
    sockets,
    wait::until,
};

/// No secret: the name of a credential, and text of a program. It has to be found in the outputs
/// that have it, so that the search reaches them.
pub(super) const PUBLIC: &str = "a-name-that-is-no-secret";

/// Canaries in the requests of a client. Some have characters that encodings change.
const CODE: &str = "canary-of-the-code";
const OUTPUT: &str = "canary-of-the-output";
pub(super) const METRICS_TOKEN: &str = "canary-of-the-metrics-token";
const HEADER: &str = "canary-of-a-foreign-token";
const QUERY: &str = "canary-of-the-query";
const TYPED: &str = "canary-of-the-keyboard";
const COPIED: &str = "canary of the clipboard: \"ä\" & \\ ö";
const COOKIE: &str = "canary-of-a-cookie-in-a-profile";
const USER_NAME: &str = "canary+of/a user name@example";
const PASSWORD: &str = "canary of a \"password\" \\ <ü&%>";
const TOTP_SECRET: &str = "CANARYOFASEEDCANARYOFASEED234567";

pub(super) fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

/// Returns the token in a URL of a browser.
fn token_in(browser: &Value, field: &str) -> String {
    let url = text(&browser[field]);
    url.split_once("jwt=").expect("a token").1.to_owned()
}

/// Uses all that accepts secrets. Browsers still run then. Returns the secrets, and [`PUBLIC`].
pub(super) async fn plant_all(
    client: &ObservedClient<'_>,
    s3: &mut S3Server,
) -> Vec<PlantedSecret> {
    let dev = client.dev;
    let made = dev.post("/org/api_keys", json!({"name": "made"})).await;
    let browser = json!({"timeout_seconds": 600});
    let browser = dev.post("/browsers", browser).await.body;
    let id = text(&browser["session_id"]);
    let jwt = token_in(&browser, "cdp_ws_url");
    let live = token_in(&browser, "browser_live_view_url");
    let view = token_in(&browser, "browser_live_view_read_only_url");

    run_script(client, &id).await;
    use_keyboard_and_clipboard(client, &id).await;
    use_urls_of_browser(client, &id, [&jwt, &live, &view]).await;
    let join_token = join_token(dev, json!({"uses": 2})).await;
    let host_token = join_fleet(client, &join_token).await;
    search_audit_log(client, &jwt).await;
    let leased = use_pool_and_profile(client).await;
    let codes = use_credentials(client).await;
    let (form_codes, filled) = use_provider_and_fill(client).await;
    let webhook_secrets = use_webhooks(client).await;
    let login_secrets = use_logins(client).await;
    use_blob_store(client, s3).await;
    for browser in [&id, &filled] {
        read_events(client, browser).await;
        read_agent_metrics(client, browser).await;
    }
    read_audit_log(client).await;
    read_metrics(client).await;
    // The newest entry in the log of the database.
    let unchanged = json!({"totp_digits": 8});
    client
        .patch(&format!("/credentials/{PUBLIC}"), unchanged, 200)
        .await;
    let commands = client.add_processes();
    for program in ["agent", "chrom", "Xvfb", "berth-script"] {
        let is_there = commands.iter().any(|command| command.contains(program));
        assert!(is_there, "no {program} in {commands:#?}");
    }

    let agent_token = fs::read_to_string(dev.host_dir(&id).join("token")).unwrap();
    let mut secrets = texts(&[
        ("a public name", PUBLIC),
        ("the first key", &dev.api_key),
        ("a created key", &text(&made.body["key"])),
        ("the browser's token", &jwt),
        ("the live view's token", &live),
        ("the read-only live view's token", &view),
        ("the token of a leased browser", &leased),
        ("a cookie of a saved profile", COOKIE),
        ("a user name", USER_NAME),
        ("a password", PASSWORD),
        ("the secret of one-time codes", TOTP_SECRET),
        ("the token of a provider", provider_server::TOKEN),
        ("a user name of a provider", provider_server::USER_NAME),
        ("a password of a provider", provider_server::PASSWORD),
        ("the metrics token", METRICS_TOKEN),
        ("the id of the blob store's key", s3::ACCESS_KEY_ID),
        ("the blob store's key", s3::SECRET_ACCESS_KEY),
        ("the blob store's session token", s3::SESSION_TOKEN),
        ("the agent's token", agent_token.trim()),
        ("a join token", &join_token),
        ("the token of a host", &host_token),
        ("the code", CODE),
        ("the output", OUTPUT),
        ("a foreign token", HEADER),
        ("a query", QUERY),
        ("the typed text", TYPED),
        ("the copied text", COPIED),
    ]);
    secrets.extend(webhook_secrets);
    secrets.extend(login_secrets);
    if let (Some(database), Some((_, url))) = (dev.postgres(), dev.variables()) {
        let password = database.password.as_str();
        secrets.extend(texts(&[
            ("the database's URL", &url),
            ("the database's password", password),
        ]));
    }
    for (number, code) in codes.iter().chain(&form_codes).enumerate() {
        secrets.push(PlantedSecret::new(
            format!("one-time code {number}"),
            code.as_str(),
        ));
    }
    secrets.extend(keys(client).await);
    secrets
}

fn texts(secrets: &[(&str, &str)]) -> Vec<PlantedSecret> {
    let secrets = secrets.iter();
    secrets
        .map(|(name, text)| PlantedSecret::new(*name, *text))
        .collect()
}

/// Returns the keys of the server, as texts and as bytes.
pub(super) async fn keys(client: &ObservedClient<'_>) -> Vec<PlantedSecret> {
    let file = |name: &str| fs::read_to_string(client.dev.state_dir().join(name)).unwrap();
    let (operator_key, signing_secret) = (file("secrets-key"), file("session-secret"));
    let authority = file("fleet-ca.pem");
    let mut secrets = texts(&[
        ("the key of stored secrets", operator_key.trim()),
        ("the signing secret", signing_secret.trim()),
        ("the key of the fleet", authority.lines().nth(1).unwrap()),
    ]);
    let operator_key = from_hex(operator_key.trim());
    secrets.extend(data_keys(client, &operator_key).await);
    let seed = TotpSecret::parse(TOTP_SECRET.to_owned()).unwrap().bytes;
    for (name, bytes) in [
        ("the key of stored secrets, in bytes", operator_key),
        (
            "the signing secret, in bytes",
            from_hex(signing_secret.trim()),
        ),
        ("the key of the fleet, in bytes", private_key_in(&authority)),
        (
            "the secret of one-time codes, in bytes",
            seed.expose_secret().to_vec(),
        ),
    ] {
        secrets.push(PlantedSecret::new(name, bytes));
    }
    secrets
}

/// Returns the bytes of the first private key of elliptic curves in a text.
fn private_key_in(pem: &str) -> Vec<u8> {
    /// Precedes the key (RFC 5915): the version, and the head of a string of 32 bytes.
    const HEAD: [u8; 5] = [2, 1, 1, 4, 32];
    let mut block = first_pem_block(pem);
    let at = memchr::memmem::find(&block, &HEAD).expect("a key");
    block.drain(..at + HEAD.len());
    block.truncate(32);
    block
}

/// Returns the bytes of the first block of a PEM file.
fn first_pem_block(pem: &str) -> Vec<u8> {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let lines = pem
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with('-'));
    BASE64_STANDARD.decode(lines.collect::<String>()).unwrap()
}

/// Returns the keys that seal the secrets of the projects. In the database they are wrapped with
/// the key of the operator (`src/control/secrets/cipher.rs`).
async fn data_keys(client: &ObservedClient<'_>, operator_key: &[u8]) -> Vec<PlantedSecret> {
    let cipher = XChaCha20Poly1305::new_from_slice(operator_key).unwrap();
    let rows = client.dev.rows("SELECT * FROM data_keys").await;
    let keys = rows.iter().map(|row| {
        let column = |name: &str| row.try_get::<String>("", name).unwrap();
        let version: i64 = row.try_get("", "version").unwrap();
        let scope = column("scope");
        let mut place = Vec::new();
        for part in [
            "berth wrapped data key v1",
            &scope,
            &version.to_string(),
            &column("key_id"),
        ] {
            place.extend((part.len() as u64).to_be_bytes());
            place.extend(part.as_bytes());
        }
        let wrapped: Vec<u8> = row.try_get("", "wrapped").unwrap();
        let (nonce, msg) = wrapped.split_first_chunk::<24>().unwrap();
        let payload = Payload { msg, aad: &place };
        let key = cipher.decrypt(&XNonce::from(*nonce), payload).unwrap();
        PlantedSecret::new(format!("the data key of {scope}"), key)
    });
    let keys: Vec<_> = keys.collect();
    assert!(keys.len() >= 2, "of the project and of the organization");
    keys
}

/// Runs a script that fails.
async fn run_script(client: &ObservedClient<'_>, id: &str) {
    let code = format!("/* {CODE} */ console.log('{OUTPUT}'); throw new Error('no')");
    let execute = format!("/browsers/{id}/automation/execute");
    // The response has the output.
    let run = client.dev.post(&execute, json!({ "code": code })).await;
    assert_eq!(run.body["success"], false, "{}", run.body);
}

/// Sends tokens in URLs and headers, valid and invalid ones.
async fn use_urls_of_browser(
    client: &ObservedClient<'_>,
    id: &str,
    [jwt, live, view]: [&String; 3],
) {
    let dev = client.dev;
    let version = format!("/browsers/{id}/json/version?jwt={jwt}");
    let version = dev.anonymous(Method::GET, &version).send().await.unwrap();
    // It has the token.
    assert_eq!(version.status(), 200);
    for page in [
        format!("/browsers/{id}/live?jwt={live}"),
        format!("/browsers/{id}/live/view?jwt={view}"),
    ] {
        let request = dev.anonymous(Method::GET, &page);
        let referer = format!("{}{page}", dev.base_url);
        client.send(request.header("Referer", referer), 200).await;
    }
    for (method, path, status) in [
        (Method::GET, "/browsers".to_owned(), 401),
        (Method::GET, format!("/browsers/{id}"), 401),
        (
            Method::POST,
            format!("/browsers/{id}/automation/execute"),
            401,
        ),
        (Method::GET, format!("/browsers/{id}/json/version"), 401),
        (
            Method::GET,
            format!("/browsers/{id}/nowhere?jwt={jwt}"),
            401,
        ),
        (
            Method::GET,
            format!("/browsers/{id}/cdp?jwt={jwt}x&q={QUERY}"),
            401,
        ),
        (Method::GET, format!("/nowhere?q={QUERY}"), 404),
    ] {
        let request = dev.anonymous(method, &path).bearer_auth(HEADER);
        client.send(request, status).await;
    }
    let invalid = json!({"headless": QUERY, "start_url": 7});
    client.post("/browsers", invalid, 400).await;
    client.get("/org/api_keys").await;
}

async fn use_keyboard_and_clipboard(client: &ObservedClient<'_>, id: &str) {
    let computer = format!("/browsers/{id}/computer");
    let batch =
        json!({"actions": [{"type": "type_text", "type_text": {"text": TYPED}}, {"type": TYPED}]});
    for (route, body, status) in [
        ("type", json!({"text": TYPED}), 200),
        ("type", json!({"text": TYPED, "delay": -1}), 400),
        ("batch", batch, 400),
        ("press_key", json!({"keys": [TYPED]}), 400),
        ("clipboard/write", json!({"text": COPIED}), 200),
        ("clipboard/write", json!({"text": [COPIED]}), 400),
    ] {
        let path = format!("{computer}/{route}");
        client.post(&path, body, status).await;
    }
    let read = format!("{computer}/clipboard/read");
    let read = client.dev.post(&read, json!({})).await;
    assert_eq!(read.body, json!({"text": COPIED}));
}

/// Registers a host. Returns the token of the host.
async fn join_fleet(client: &ObservedClient<'_>, join_token: &str) -> String {
    let key = HostKey::generate().unwrap();
    let host_token = key.token(TokenAudience::Registration).unwrap();
    for (token, request, status) in [
        (join_token, registration(&key), 201),
        (join_token, registration(&key), 409),
        (join_token, json!({"address": join_token}), 400),
        (&host_token, registration(&key), 201),
        (&host_token, json!({"boot_id": host_token}), 400),
    ] {
        let request = client
            .dev
            .anonymous(Method::POST, "/fleet/hosts")
            .json(&request);
        client.send(request.bearer_auth(token), status).await;
    }
    for path in ["/fleet/join_tokens", "/fleet/hosts"] {
        client.get(path).await;
    }
    host_token
}

/// Stores a credential with the name [`PUBLIC`]. Returns one-time codes of it.
pub(super) async fn use_credentials(client: &ObservedClient<'_>) -> Vec<String> {
    let values = json!({"username": USER_NAME, "password": PASSWORD});
    let credential = json!({"name": PUBLIC, "domain": "shop.example", "values": values});
    let mistyped = json!({"name": PASSWORD, "domain": [PASSWORD], "values": {"a": [PASSWORD]}});
    let too_long = json!({"values": PASSWORD, "totp_secret": format!("{TOTP_SECRET}1")});
    for (body, status) in [
        (credential.clone(), 201),
        (credential, 409),
        (mistyped, 400),
        (too_long, 400),
    ] {
        client.post("/credentials", body, status).await;
    }
    let path = format!("/credentials/{PUBLIC}");
    let options = json!({"totp_secret": TOTP_SECRET, "totp_digits": 8, "totp_period": 300});
    // Its response has a code, like that of the route for codes.
    let updated = client.dev.patch(&path, options).await;
    assert_eq!(updated.status, 200, "{}", updated.body);
    let uri = format!("otpauth://totp/me?secret={TOTP_SECRET}&digits=20");
    client
        .patch(&path, json!({ "totp_secret": uri }), 400)
        .await;
    for path in ["/credentials", &path] {
        client.get(path).await;
    }
    let code = client.dev.get(&format!("{path}/totp-code")).await;
    vec![text(&updated.body["totp_code"]), text(&code.body["code"])]
}

/// Stores the token of a provider. Returns the path of the provider.
pub(super) async fn use_provider(client: &ObservedClient<'_>, server: &ProviderServer) -> String {
    let provider = json!({"name": "vault", "provider_type": "vendorpassword", "token": provider_server::TOKEN, "base_url": server.base_url});
    let providers = "/org/credential_providers";
    let created = client.post(providers, provider.clone(), 201).await;
    let mut unusable = provider;
    unusable["base_url"] = json!(provider_server::TOKEN);
    client.post(providers, unusable, 400).await;
    let path = format!("{providers}/{}", text(&created["id"]));
    let tested = client.post(&format!("{path}/test"), json!({}), 200).await;
    assert_eq!(tested["success"], true, "{tested}");
    client.get(&format!("{path}/items")).await;
    path
}

/// Fills and submits forms with a stored credential, its one-time code and an item of a provider.
/// Returns the codes, and the id of a browser whose page has the values.
async fn use_provider_and_fill(client: &ObservedClient<'_>) -> (Vec<String>, String) {
    let site = LoginSite::serve().await;
    let server = ProviderServer::start_for(&site.url).await;
    use_provider(client, &server).await;
    let start_url = format!("{}/login", site.url);
    let options = json!({"start_url": start_url, "timeout_seconds": 600});
    let browser = client.dev.browser(options).await;
    let id = text(&browser["session_id"]);
    let path = format!("/browsers/{id}/credentials/fill");
    let fill = async |mut request: Value, status: u16| {
        request["allowed_domains"] = json!(["localhost"]);
        client.post(&path, request, status).await
    };
    let not_permitted = json!({ "credential": PUBLIC });
    client.post(&path, not_permitted, 403).await;
    let unknown = json!({"credential": PUBLIC, "fields": [{"name": PASSWORD}]});
    fill(unknown, 400).await;
    fill(json!({"credential": PUBLIC, "submit": true}), 200).await;
    let submitted = site.submitted().await;
    assert_eq!(submitted[1], ("pass".to_owned(), PASSWORD.to_owned()));
    client.add_processes();

    client
        .execute(&id, &format!("await page.goto('{}/code')", site.url))
        .await;
    let code = json!({"credential": PUBLIC, "fields": [{"name": "code"}], "submit": true});
    fill(code, 200).await;
    let codes = site.submitted().await.into_iter().map(|(_, code)| code);
    let codes: Vec<_> = codes.collect();
    client
        .execute(&id, &format!("await page.goto('{start_url}')"))
        .await;
    let item = json!({"provider": "vault", "path": "Team/Shop"});
    fill(item.clone(), 200).await;
    fill(json!({ "credential": PUBLIC }), 200).await;
    // A token that the provider refuses.
    server.fail_with(StatusCode::UNAUTHORIZED);
    fill(item, 502).await;
    client.outputs.add_urls("the site", &site.urls);
    client.outputs.add_urls("the provider", &server.urls);
    client.get(&format!("/browsers/{id}/json/list")).await;
    (codes, id)
}

/// Leases a browser of a pool, saves it with a cookie to a profile, and gives it back. Returns the
/// token of the browser.
async fn use_pool_and_profile(client: &ObservedClient<'_>) -> String {
    let pool = json!({"name": "pool", "size": 1, "headless": true, "fill_rate_per_minute": 10_000});
    client.post("/browser_pools", pool, 201).await;
    // The response has the token.
    let leased = client
        .dev
        .post("/browser_pools/pool/acquire", json!({}))
        .await;
    assert_eq!(leased.status, 200, "{}", leased.body);
    let id = text(&leased.body["session_id"]);
    let token = token_in(&leased.body, "cdp_ws_url");
    let cookie = format!(
        "await context.addCookies([{{name: 'login', value: '{COOKIE}',
            url: 'https://shop.example/', expires: 4102444800}}])"
    );
    client.execute(&id, &cookie).await;
    let [acquire, release] = ["acquire", "release"].map(|it| format!("/browser_pools/pool/{it}"));
    let save = format!("/browsers/{id}/profiles");
    for (path, body, status) in [
        (&save, json!({"name": "saved"}), 201),
        (&save, json!({"name": [COOKIE]}), 400),
        (&acquire, json!({"tags": [COOKIE]}), 400),
        (&release, json!({ "session_id": token }), 400),
        (&release, json!({ "session_id": id }), 204),
    ] {
        client.post(path, body, status).await;
    }
    let upload = client.dev.request(Method::PUT, "/profiles/saved/upload");
    client.send(upload.body(COOKIE), 400).await;
    for path in [
        "/browser_pools/pool",
        "/profiles/saved",
        "/profiles/saved/versions",
    ] {
        client.get(path).await;
    }
    client.delete("/browser_pools/pool").await;
    load_profile(client).await;
    token
}

/// Loads the saved profile into browsers, when one is created and while one runs, saves it at the
/// end of one, and downloads it.
async fn load_profile(client: &ObservedClient<'_>) {
    let selection = json!({"name": "saved", "save_changes": true});
    let saving = client.dev.browser(json!({ "profile": selection })).await;
    let saving = text(&saving["session_id"]);
    assert_has_cookie(client, &saving).await;
    client.get(&format!("/browsers/{saving}")).await;
    client.delete(&format!("/browsers/{saving}")).await;
    let profile = client.get("/profiles/saved").await;
    assert_eq!(profile["version"], 2, "{profile}");
    let archive = client.dev.request(Method::GET, "/profiles/saved/download");
    // Cookies in it are encrypted, and it is compressed.
    client.send(archive, 200).await;
    let running = text(&client.dev.browser(json!({})).await["session_id"]);
    let path = format!("/browsers/{running}");
    let load = json!({"profile": {"name": "saved"}});
    client.patch(&path, load, 200).await;
    assert_has_cookie(client, &running).await;
    client.delete(&path).await;
}

/// Asserts that a browser has the planted cookie, without having it in the response.
async fn assert_has_cookie(client: &ObservedClient<'_>, id: &str) {
    let code = format!("return (await context.cookies()).some(it => it.value === '{COOKIE}')");
    assert_eq!(client.execute(id, &code).await, true);
}

/// Stores a replay in the bucket, reads it, and fails to after the end of the service.
async fn use_blob_store(client: &ObservedClient<'_>, s3: &mut S3Server) {
    let browser = client.dev.browser(json!({})).await;
    let replay = add_finished(client.dev, &browser, b"recorded");
    let base = format!("/browsers/{}", text(&browser["session_id"]));
    client.delete(&base).await;
    let path = format!("{base}/replays/{replay}");
    until("the replay in the bucket", async || {
        let file = client.dev.request(Method::GET, &path).send().await.unwrap();
        (file.text().await.unwrap() == "recorded").then_some(())
    })
    .await;
    let listed = format!("{base}/replays");
    client.read(OutputKind::ReplayName, &listed).await;
    client.read(OutputKind::ReplayName, &path).await;
    s3.kill().await;
    let failing = client.dev.request(Method::GET, &path);
    client.send(failing, 503).await;
}

/// Plants a key and a token in the path and headers of requests.
async fn search_audit_log(client: &ObservedClient<'_>, jwt: &str) {
    let dev = client.dev;
    let path = format!("/org/api_keys/{}", dev.api_key);
    client.send(dev.request(Method::DELETE, &path), 404).await;
    let path = format!("/browsers/{jwt}/process/exec?q={QUERY}&jwt={jwt}");
    let request = dev.anonymous(Method::POST, &path);
    let request = request.header("User-Agent", format!("x {jwt}"));
    client.send(request, 401).await;
    until("the requests in the audit log", async || {
        let listed = dev.get(&format!("/audit-logs?{AUDIT_WINDOW}")).await.body;
        let has = |path: &str| listed.as_array().unwrap().iter().any(|e| e["path"] == path);
        let is_complete =
            has("/org/api_keys/[redacted]") && has("/browsers/[redacted]/process/exec");
        is_complete.then_some(())
    })
    .await;
}

const AUDIT_WINDOW: &str = "start=2020-01-01T00:00:00Z&end=2100-01-01T00:00:00Z&limit=100";

/// Reads all entries of the audit log, listed and exported.
async fn read_audit_log(client: &ObservedClient<'_>) {
    let export = AUDIT_WINDOW.replace("limit=100", "format=jsonl");
    for path in [
        format!("/audit-logs?{AUDIT_WINDOW}"),
        format!("/audit-logs/export/chunk?{export}"),
    ] {
        client.read(OutputKind::AuditEntry, &path).await;
    }
}

async fn read_metrics(client: &ObservedClient<'_>) {
    for credential in [&client.dev.api_key, METRICS_TOKEN] {
        let metrics = client.dev.anonymous(Method::GET, "/metrics");
        let metrics = metrics.bearer_auth(credential);
        let kind = Some(OutputKind::Metric);
        let (status, _) = client.outputs.fetch(kind, metrics).await;
        assert_eq!(status, 200);
    }
}

/// Reads the metrics of the agent of a browser, which clients cannot.
async fn read_agent_metrics(client: &ObservedClient<'_>, id: &str) {
    let directory = client.dev.host_dir(id);
    let agents = client.dev.descendants_with(directory.to_str().unwrap());
    let listener = agents.into_iter().find_map(|agent| {
        let listeners = sockets::tcp_listeners(agent.as_raw().cast_unsigned());
        listeners.into_iter().next()
    });
    // A hexadecimal address and port.
    let listener = listener.expect("an agent that listens");
    let (_, port) = listener.split_once(':').unwrap();
    let port = u16::from_str_radix(port, 16).unwrap();
    let token = fs::read_to_string(directory.join("token")).unwrap();
    let metrics = client
        .dev
        .http
        .get(format!("http://127.0.0.1:{port}/metrics"));
    let metrics = metrics.bearer_auth(token.trim());
    let kind = Some(OutputKind::Metric);
    let (status, body) = client.outputs.fetch(kind, metrics).await;
    assert_eq!(status, 200);
    let body = String::from_utf8(body).unwrap();
    assert!(body.contains("berth_chromium_up 1"), "{body}");
}

/// Reads the event streams of a browser: logs, output of a program with the name [`PUBLIC`], and
/// changes of a directory.
async fn read_events(client: &ObservedClient<'_>, id: &str) {
    let base = format!("/browsers/{id}");
    for program in ["agent", "chromium", "xvfb"] {
        let query = format!("source=supervisor&supervisor_process={program}&follow=false");
        let path = format!("{base}/logs/stream?{query}");
        client.read(OutputKind::Event, &path).await;
    }
    let script = "echo \"$0\"; read line";
    let program = json!({"command": "sh", "args": ["-c", script, PUBLIC], "env": {"NAME": PUBLIC}});
    let program = client
        .post(&format!("{base}/process/spawn"), program, 201)
        .await;
    let output = format!(
        "{base}/process/{}/stdout/stream",
        text(&program["process_id"])
    );
    read_event(client, &output).await;

    let directory = tempfile::tempdir().unwrap();
    let watch = json!({ "path": directory.path() });
    let watch = client.post(&format!("{base}/fs/watch"), watch, 201).await;
    fs::write(directory.path().join(PUBLIC), "").unwrap();
    let events = format!("{base}/fs/watch/{}/events", text(&watch["watch_id"]));
    read_event(client, &events).await;
}

/// Reads one event of a stream that does not end.
async fn read_event(client: &ObservedClient<'_>, path: &str) {
    let request = client.dev.request(Method::GET, path);
    let (_, event) = Events::open(request).await.next().await.expect("an event");
    let outputs = client.outputs;
    outputs.add(OutputKind::Event, path, event.to_string());
}
