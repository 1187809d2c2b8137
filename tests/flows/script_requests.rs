//! HTTP requests of scripts (`page.request`, `route.fetch`), which the agent performs.

use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{ConnectInfo, Path, State},
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{AppendHeaders, Html, IntoResponse, Redirect},
    routing::{any, get},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::StreamExt;
use nix::unistd::Uid;
use serde_json::json;
use tokio::{
    net::TcpListener,
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
};

use crate::support::{
    agent::{Start, TestAgent},
    canary_site::CanarySite,
    dev::Dev,
    scripts::{error_of, execute, result_of},
    wait::in_time,
};

/// A report of the endpoint `/hang`.
#[derive(Debug, PartialEq)]
enum Hanging {
    Started,
    Ended,
}

#[derive(Clone)]
struct SiteState {
    hanging: UnboundedSender<Hanging>,
    has_started: Arc<Notify>,
    attempts: Arc<AtomicUsize>,
}

/// A server on this machine, served until the test's runtime ends.
struct Site {
    url: String,
    hanging: UnboundedReceiver<Hanging>,
    attempts: Arc<AtomicUsize>,
}

impl Site {
    async fn serve() -> Self {
        let (sender, hanging) = unbounded_channel();
        let attempts = Arc::<AtomicUsize>::default();
        let state = SiteState {
            hanging: sender,
            has_started: Arc::default(),
            attempts: attempts.clone(),
        };
        let app = Router::new()
            .route("/login", get(log_in))
            .route("/echo", any(echo))
            .route("/echo/bytes", any(async |body: Bytes| body))
            .route("/redirect/{left}", any(redirect))
            .route("/compressed/{encoding}", get(compressed))
            .route("/status/{code}", get(status))
            .route("/large/{mib}", get(large))
            .route("/owner", get(owner))
            .route("/hang", get(hang))
            .route("/started", get(started))
            .route("/broken", get(broken))
            .with_state(state)
            .into_make_service_with_connect_info::<SocketAddr>();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Site {
            url,
            hanging,
            attempts,
        }
    }

    async fn reports(&mut self, expected: Hanging) {
        let report = in_time("a report", self.hanging.recv()).await;
        assert_eq!(report, Some(expected));
    }
}

async fn log_in() -> impl IntoResponse {
    let cookie = "login=now; Path=/; HttpOnly";
    ([(header::SET_COOKIE, cookie)], Html("<title>site</title>"))
}

/// Describes the request. Sets two cookies.
async fn echo(method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    let of = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
    let description = json!({
        "method": method.as_str(),
        "target": uri.to_string(),
        "cookie": of("cookie"),
        "type": of("content-type").map(|value| value.split(';').next()),
        "length": of("content-length"),
        "own": of("x-own"),
        "agent": of("user-agent"),
        "authorization": of("authorization"),
        "body": String::from_utf8_lossy(&body),
    });
    let cookies = [
        (header::SET_COOKIE, "first=1; Path=/"),
        (header::SET_COOKIE, "second=2; Path=/"),
    ];
    (AppendHeaders(cookies), Json(description))
}

async fn redirect(Path(left): Path<u32>) -> Redirect {
    match left {
        0 => Redirect::to("/echo"),
        left => Redirect::to(&format!("/redirect/{}", left - 1)),
    }
}

/// Responds with `content of the response`.
async fn compressed(Path(encoding): Path<String>) -> impl IntoResponse {
    let bytes = match encoding.as_str() {
        "gzip" => "H4sIAAAAAAAAA0vOzytJzStRyE9TKMlIVShKLS7IzytOBQAUd2H1FwAAAA==",
        "deflate" => "eJxLzs8rSc0rUchPUyjJSFUoSi0uyM8rTgUAacAI4Q==",
        _ => "GxYA+CVBzN6qEE+qgpfoAhI=",
    };
    let bytes = BASE64_STANDARD.decode(bytes).unwrap();
    ([(header::CONTENT_ENCODING, encoding)], bytes)
}

async fn status(Path(code): Path<u16>) -> StatusCode {
    StatusCode::from_u16(code).unwrap()
}

async fn large(Path(mib): Path<usize>) -> Body {
    let mebibyte = Bytes::from(vec![b'x'; 1 << 20]);
    let parts = futures::stream::repeat(mebibyte).take(mib);
    Body::from_stream(parts.map(Ok::<_, std::io::Error>))
}

/// Responds with the user that owns the socket of the client.
async fn owner(ConnectInfo(client): ConnectInfo<SocketAddr>) -> String {
    let local = format!("0100007F:{:04X}", client.port());
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    let mut lines = sockets.lines().map(str::split_whitespace);
    let socket = lines.find_map(|mut columns| (columns.nth(1) == Some(&local)).then_some(columns));
    socket
        .expect("the client's socket")
        .nth(5)
        .unwrap()
        .to_owned()
}

async fn hang(State(state): State<SiteState>) {
    /// Reports when the connection has ended.
    struct Guard(UnboundedSender<Hanging>);
    impl Drop for Guard {
        fn drop(&mut self) {
            let _ = self.0.send(Hanging::Ended);
        }
    }
    let _guard = Guard(state.hanging.clone());
    state.hanging.send(Hanging::Started).unwrap();
    state.has_started.notify_one();
    std::future::pending::<()>().await;
}

/// Responds once a request of [`hang`] has arrived.
async fn started(State(state): State<SiteState>) {
    state.has_started.notified().await;
}

/// Closes the connection, but for the third request.
async fn broken(State(state): State<SiteState>) -> impl IntoResponse {
    if state.attempts.fetch_add(1, Ordering::SeqCst) == 2 {
        return Body::from("third");
    }
    let parts = [Err(std::io::Error::other("closed"))];
    Body::from_stream(futures::stream::iter(
        parts.map(|part: Result<Bytes, _>| part),
    ))
}

async fn agent() -> TestAgent {
    let allowed = ["--allow-networks", "127.0.0.0/8"];
    Start::headless().with(allowed).ready().await
}

#[tokio::test]
async fn requests_share_the_cookies_of_the_context() {
    let (agent, site) = (agent().await, Site::serve().await);
    let url = &site.url;
    let code = format!(
        "await page.goto('{url}/login'); \
         const response = await page.request.get('{url}/echo'); \
         const own = await playwright.request.newContext(); \
         const separate = await (await own.get('{url}/echo')).json(); await own.dispose(); \
         return {{ sent: (await response.json()).cookie, seen: await page.evaluate(() => document.cookie), \
             names: (await context.cookies()).map(cookie => cookie.name).sort(), separate: separate.cookie }}"
    );
    let result = result_of(&agent, &code).await;
    let expected = json!({
        "sent": "login=now",
        "seen": "first=1; second=2",
        "names": ["first", "login", "second"],
        "separate": null,
    });
    assert_eq!(result, expected);
    agent.stop().await;
}

#[tokio::test]
async fn request_has_the_given_method_headers_and_body() {
    let (agent, site) = (agent().await, Site::serve().await);
    let url = &site.url;
    let code = format!(
        "const send = async (options, address = '{url}/echo') => {{ \
             const response = await context.request.fetch(address, {{ failOnStatusCode: true, ...options }}); \
             const {{ method, target, type, length, own, authorization, body }} = await response.json(); \
             return [method, target, type, length, own, authorization, body] }}; \
         return [ \
             await send({{ method: 'POST', data: {{ a: 'é' }} }}), \
             await send({{ method: 'PUT', form: {{ b: '1 2' }} }}), \
             await send({{ params: {{ q: 'x y' }}, headers: {{ 'X-Own': 'given' }} }}), \
             await send({{ method: 'DELETE', headers: {{ 'content-length': '7', 'transfer-encoding': 'chunked' }} }}), \
             await send({{}}, '{}/echo'), \
             await send({{ method: 'POST' }}), \
         ]",
        url.replace("//", "//user:p%40ss@")
    );
    let result = result_of(&agent, &code).await;
    let expected = json!([
        [
            "POST",
            "/echo",
            "application/json",
            "10",
            null,
            null,
            "{\"a\":\"é\"}"
        ],
        [
            "PUT",
            "/echo",
            "application/x-www-form-urlencoded",
            "5",
            null,
            null,
            "b=1+2"
        ],
        ["GET", "/echo?q=x+y", null, null, "given", null, ""],
        ["DELETE", "/echo", null, null, null, null, ""],
        ["GET", "/echo", null, null, null, "Basic dXNlcjpwQHNz", ""],
        ["POST", "/echo", null, "0", null, null, ""],
    ]);
    assert_eq!(result, expected);

    let code = format!(
        "const bytes = Buffer.from(Array.from({{ length: 70_000 }}, (_, index) => index % 256)); \
         const response = await page.request.post('{url}/echo/bytes', {{ data: bytes }}); \
         const file = {{ name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('of the file') }}; \
         const form = await page.request.post('{url}/echo', {{ multipart: {{ field: 'value', file }} }}); \
         const {{ type, body }} = await form.json(); \
         return [bytes.equals(await response.body()), type, \
             ['name=\"field\"', 'value', 'filename=\"a.txt\"', 'of the file'].every(part => body.includes(part))]"
    );
    let result = result_of(&agent, &code).await;
    assert_eq!(result, json!([true, "multipart/form-data", true]));
    agent.stop().await;
}

#[tokio::test]
async fn response_has_status_headers_and_decompressed_body() {
    let (agent, site) = (agent().await, Site::serve().await);
    let url = &site.url;
    let code = format!(
        "const bodies = []; \
         for (const encoding of ['gzip', 'deflate', 'br']) \
             bodies.push(await (await page.request.get(`{url}/compressed/${{encoding}}`)).text()); \
         const missing = await page.request.get('{url}/status/404'); \
         const redirected = await page.request.get('{url}/redirect/3'); \
         const failing = await page.request.get('{url}/status/500', {{ failOnStatusCode: true }}).catch(error => error.message); \
         const endless = await page.request.get('{url}/redirect/3', {{ maxRedirects: 2 }}).catch(error => error.message); \
         return {{ bodies, missing: [missing.status(), missing.statusText(), missing.ok()], \
             redirected: [redirected.url(), redirected.ok(), redirected.headersArray().filter(({{ name }}) => name === 'set-cookie').length], \
             failing: failing.split('\\n')[0], endless: endless.split('\\n')[0] }}"
    );
    let result = result_of(&agent, &code).await;
    let content = "content of the response";
    let expected = json!({
        "bodies": [content, content, content],
        "missing": [404, "Not Found", false],
        "redirected": [format!("{url}/echo"), true, 2],
        "failing": "apiRequestContext.get: 500 Internal Server Error",
        "endless": "apiRequestContext.get: Max redirect count exceeded",
    });
    assert_eq!(result, expected);
    agent.stop().await;
}

#[tokio::test]
async fn route_changes_a_fetched_response() {
    let (agent, site) = (agent().await, Site::serve().await);
    let url = &site.url;
    let code = format!(
        "await page.goto('{url}/login'); \
         await page.route('**/echo', async route => {{ \
             const response = await route.fetch({{ method: 'POST', postData: 'changed' }}); \
             const echo = await response.json(); \
             await route.fulfill({{ response, json: {{ ...echo, added: true }} }}) }}); \
         return await page.evaluate(async () => {{ \
             const {{ method, cookie, body, added }} = await (await fetch('/echo')).json(); \
             return {{ method, cookie, body, added }} }})"
    );
    let expected = json!({
        "method": "POST", "cookie": "login=now", "body": "changed", "added": true
    });
    assert_eq!(result_of(&agent, &code).await, expected);
    agent.stop().await;
}

/// Returns code that collects the first lines of the errors of expressions.
fn errors_of(expressions: &[String]) -> String {
    let attempts: String = expressions
        .iter()
        .map(|expression| format!("await attempt(() => {expression}); "))
        .collect();
    format!(
        "const errors = []; const attempt = async run => {{ \
             try {{ await run(); errors.push(null) }} catch (error) {{ errors.push(error.message.split('\\n')[0]) }} }}; \
         {attempts} return errors"
    )
}

#[tokio::test]
async fn failed_request_names_its_reason() {
    let (agent, site) = (agent().await, Site::serve().await);
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed_url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let get = |url: &str| format!("page.request.get('{url}')");
    let own_url = agent.url("/health");
    let with_headers = |headers: &str| {
        format!(
            "page.request.get('{}/echo', {{ headers: {headers} }})",
            site.url
        )
    };
    let errors = errors_of(&[
        get(&closed_url),
        get("http://169.254.169.254/latest/meta-data/"),
        get("http://10.0.0.1/"),
        get(&own_url),
        get(&own_url.replace("127.0.0.1", "127.3.2.1")),
        get("http://name.invalid/"),
        format!("page.request.get('{}/hang', {{ timeout: 100 }})", site.url),
        format!("page.request.get('{}/broken')", site.url),
        format!(
            "page.request.get('{}/echo', {{ headers: {{ 'a b': 'c' }} }})",
            site.url
        ),
        format!(
            "page.request.post('{}/echo', {{ data: Buffer.alloc(33 << 20) }})",
            site.url
        ),
        format!(
            "page.request.fetch('{}/echo', {{ method: 'A B' }})",
            site.url
        ),
        with_headers("{ a: '日本' }"),
        with_headers("{ a: 'b'.repeat(100 << 10) }"),
    ]);
    let errors = result_of(&agent, &errors).await;
    let expected = json!([
        "apiRequestContext.get: ECONNREFUSED: cannot connect to 127.0.0.1: connection refused",
        "apiRequestContext.get: EACCES: the address of 169.254.169.254 is not public and not among the allowed networks",
        "apiRequestContext.get: EACCES: the address of 10.0.0.1 is not public and not among the allowed networks",
        "apiRequestContext.get: EACCES: 127.0.0.1 leads to this server itself",
        "apiRequestContext.get: EACCES: 127.3.2.1 leads to this server itself",
        "apiRequestContext.get: ENOTFOUND: cannot resolve name.invalid",
        "apiRequestContext.get: Timeout 100ms exceeded.",
        "apiRequestContext.get: ECONNRESET: 127.0.0.1 closed the connection, or its response is not valid HTTP",
        "apiRequestContext.get: EINVAL: invalid header `a b`",
        "apiRequestContext.post: EFBIG: the body has more than 32 MiB",
        "apiRequestContext.fetch: EINVAL: invalid method",
        "apiRequestContext.get: EINVAL: invalid character in the value of a header",
        "apiRequestContext.get: EFBIG: the URL and the headers have more than 256 KiB",
    ]);
    assert_eq!(errors, expected);
    agent.stop().await;
}

#[tokio::test]
async fn interrupted_request_is_sent_again_on_demand() {
    let (agent, site) = (agent().await, Site::serve().await);
    let code = format!(
        "return await (await page.request.get('{}/broken', {{ maxRetries: 2 }})).text()",
        site.url
    );
    assert_eq!(result_of(&agent, &code).await, "third");
    assert_eq!(site.attempts.load(Ordering::SeqCst), 3);
    agent.stop().await;
}

#[tokio::test]
async fn this_machine_is_not_reached_unless_it_is_allowed() {
    let (agent, site) = (Start::headless().ready().await, Site::serve().await);
    let code = format!("await page.request.get('{}/echo')", site.url);
    let error = error_of(&agent, &code, 30).await;
    let expected = "the address of 127.0.0.1 is not public and not among the allowed networks";
    assert!(error.contains(expected), "{error}");
    agent.stop().await;
}

#[tokio::test]
async fn scripts_of_dev_reach_this_machine() {
    let (dev, site) = (Dev::start().await, Site::serve().await);
    let browser = dev.browser(json!({})).await;
    let path = format!(
        "/browsers/{}/automation/execute",
        browser["session_id"].as_str().unwrap()
    );
    let code = format!(
        "return (await page.request.get('{}/echo')).status()",
        site.url
    );
    let answer = dev.post(&path, json!({ "code": code })).await;
    assert_eq!(answer.body["result"], 200, "{}", answer.body);
    dev.finish().await;
}

#[tokio::test]
async fn certificate_is_verified_unless_the_script_accepts_any() {
    let (agent, site) = (agent().await, CanarySite::serve().await);
    let (_, port) = site.secure_url.rsplit_once(':').unwrap();
    let url = format!("https://127.0.0.1:{port}/secure");
    let code = format!(
        "const refused = await page.request.get('{url}').catch(error => error.message.split('\\n')[0]); \
         const accepted = await page.request.get('{url}', {{ ignoreHTTPSErrors: true }}); \
         return [refused, await accepted.text()]"
    );
    let expected = json!([
        "apiRequestContext.get: EPROTO: TLS with 127.0.0.1 failed: the certificate is invalid",
        "full"
    ]);
    assert_eq!(result_of(&agent, &code).await, expected);
    agent.stop().await;
}

#[tokio::test]
async fn large_response_is_complete_up_to_the_limit() {
    let (agent, site) = (agent().await, Site::serve().await);
    let url = &site.url;
    let code = format!(
        "const response = await page.request.get('{url}/large/100'); \
         const length = (await response.body()).length; await response.dispose(); \
         const error = await page.request.get('{url}/large/129').catch(error => error.message.split('\\n')[0]); \
         return [length, error]"
    );
    let expected = json!([
        100 << 20,
        "apiRequestContext.get: EFBIG: the response has more than 128 MiB"
    ]);
    assert_eq!(result_of(&agent, &code).await, expected);
    agent.stop().await;
}

#[tokio::test]
async fn many_requests_at_once_are_all_answered() {
    let (agent, site) = (agent().await, Site::serve().await);
    let code = format!(
        "const responses = await Promise.all(Array.from({{ length: 200 }}, \
             (_, index) => page.request.post('{}/echo/bytes', {{ data: `${{index}}` }}))); \
         const texts = await Promise.all(responses.map(response => response.text())); \
         return texts.every((text, index) => text === `${{index}}`)",
        site.url
    );
    assert_eq!(result_of(&agent, &code).await, true);
    agent.stop().await;
}

#[tokio::test]
async fn request_ends_with_its_script() {
    let (agent, mut site) = (agent().await, Site::serve().await);
    let start = format!(
        "globalThis.pending = page.request.get('{}/hang').catch(error => error.message); ",
        site.url
    );
    let started = format!("await page.goto('{}/started')", site.url);
    // One that the script does not wait for, and one of a script that runs into its timeout.
    for (rest, timeout) in [(started.as_str(), 30), ("await pending", 1)] {
        let body = json!({"code": format!("{start}{rest}"), "timeout_sec": timeout});
        execute(&agent, body).await;
        site.reports(Hanging::Started).await;
        site.reports(Hanging::Ended).await;
    }
    // A call of an executor: the request ends with the call, and the next call works.
    let call = async |code: String| {
        let body = json!({"code": code, "executor": "own"});
        execute(&agent, body).await
    };
    let first = call(format!("{start} {started}")).await;
    assert_eq!(first["success"], true, "{first}");
    site.reports(Hanging::Started).await;
    site.reports(Hanging::Ended).await;
    let next = format!("return (await page.request.get('{}/echo')).ok()", site.url);
    assert_eq!(call(next).await["result"], true);
    agent.stop().await;
}

#[tokio::test]
async fn connection_belongs_to_the_user_of_scripts() {
    if !Uid::effective().is_root() {
        return;
    }
    let allowed = ["--allow-networks", "127.0.0.1", "--script-user", "12345"];
    let agent = Start::headless().with(allowed).ready().await;
    let site = Site::serve().await;
    let code = format!(
        "return await (await page.request.get('{}/owner')).text()",
        site.url
    );
    assert_eq!(result_of(&agent, &code).await, "12345");
    agent.stop().await;
}
