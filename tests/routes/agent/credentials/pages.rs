//! The pages of the tests, and a server for them on several hosts.
//!
//! A page is a file in `pages`. Its first line is a comment with the values, the other fields of
//! the request, and the expected outcomes, in JSON: `again` are those of a second fill, if they are
//! others. `data-right` of a field is the name of the value
//! that belongs into it, with the position of the character for a field of a split code. `SITE`,
//! `SUBDOMAIN` and `OTHER` stand for the origins.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    extract::{Path as UrlPath, RawQuery, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::languages::LANGUAGES;
use crate::support::{
    agent::{Start, TestAgent},
    page::Page,
};

const REPORT: &str = include_str!("report.js");
const MUTATE: &str = include_str!("mutate.js");

/// A page with the expected outcome.
#[derive(Clone)]
pub struct Variant {
    pub name: String,
    pub expected: Value,
    pub html: String,
}

impl Variant {
    /// Returns the body of a request to fill the page.
    pub fn request(&self) -> Value {
        let mut request = json!({
            "domain": "login.berth-site.test",
            "allow_http": true,
            "values": {"username": "ada.lovelace", "password": "correct horse"},
        });
        for field in ["values", "fields", "allowed_domains"] {
            if let Some(value) = self.expected.get(field) {
                request[field] = value.clone();
            }
        }
        request
    }
}

/// Returns all pages.
pub fn variants() -> Vec<Variant> {
    let mut variants = read_pages("tests/routes/agent/credentials/pages");
    variants.extend(LANGUAGES.iter().map(|labels| Variant {
        name: format!("language_{}", labels.0),
        expected: json!({
            "values": {"username": "ada.lovelace", "password": "correct horse", "code": "123456"},
            "outcomes": {"username": "filled", "password": "filled", "code": "filled"},
        }),
        html: labels.html(),
    }));
    variants.sort_by(|a, b| a.name.cmp(&b.name));
    variants
}

/// Returns the pages of a directory of the package.
pub fn read_pages(directory: &str) -> Vec<Variant> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let entries = fs::read_dir(directory).unwrap();
    let read = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        let (head, html) = text.split_once("-->").unwrap();
        Variant {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            expected: serde_json::from_str(head.trim_start_matches("<!--")).unwrap(),
            html: html.to_owned(),
        }
    };
    entries.map(|entry| read(&entry.unwrap().path())).collect()
}

/// Returns a page that is no file.
pub fn variant(name: &str, html: &str) -> Variant {
    Variant {
        name: name.to_owned(),
        expected: json!({}),
        html: html.to_owned(),
    }
}

/// Serves pages on every host name below `test`, until the test's runtime ends.
pub struct FormSite {
    port: u16,
    leaks: Arc<AtomicUsize>,
}

struct Served {
    port: u16,
    pages: BTreeMap<String, String>,
}

impl FormSite {
    pub async fn serve(variants: &[Variant]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let pages = variants.iter();
        let pages = pages.map(|variant| (variant.name.clone(), variant.html.clone()));
        let served = Arc::new(Served {
            port,
            pages: pages.collect(),
        });
        let leaks = Arc::<AtomicUsize>::default();
        let counted = leaks.clone();
        let script =
            |text: &'static str| async move { ([(header::CONTENT_TYPE, "text/javascript")], text) };
        let app = Router::new()
            .route("/report.js", get(move || script(REPORT)))
            .route("/mutate.js", get(move || script(MUTATE)))
            .route("/pages/{name}", get(serve_page))
            .route(
                "/leaked",
                post(async move || {
                    counted.fetch_add(1, Ordering::Relaxed);
                }),
            )
            .fallback(async || Html("<title>taken</title>"))
            .with_state(served);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { port, leaks }
    }

    /// Returns the origins of the site and of another one.
    pub fn origins(&self) -> [String; 2] {
        [site(self.port), other_site(self.port)]
    }

    /// Returns the number of reports that a page has sent to `/leaked`.
    pub fn leaks(&self) -> usize {
        self.leaks.load(Ordering::Relaxed)
    }

    /// Starts a browser that finds the site, and no host on the internet.
    pub async fn browser(start: Start) -> TestAgent {
        let rules = "MAP *.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.*";
        let flag = format!("--chromium-flag=--host-resolver-rules={rules}");
        start.with([&*flag]).ready().await
    }

    /// Returns the address of a page.
    pub fn url(&self, variant: &Variant) -> String {
        let host = match variant.expected["host"].as_str() {
            Some("OTHER") => other_site(self.port),
            _ => site(self.port),
        };
        format!("{host}/pages/{}", variant.name)
    }
}

fn site(port: u16) -> String {
    format!("http://www.berth-site.test:{port}")
}

fn other_site(port: u16) -> String {
    format!("http://www.other-site.test:{port}")
}

/// Serves a page with the scripts of the tests. A seed in the query mutates it and its frames.
async fn serve_page(
    UrlPath(name): UrlPath<String>,
    RawQuery(seed): RawQuery,
    State(served): State<Arc<Served>>,
) -> Response {
    let Some(html) = served.pages.get(&name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let port = served.port;
    let mut html = html
        .replace("SUBDOMAIN", &format!("http://login.berth-site.test:{port}"))
        .replace("OTHER", &other_site(port))
        .replace("SITE", &site(port));
    let mut scripts = "<!doctype html><script src=/report.js></script>".to_owned();
    if let Some(seed) = seed {
        scripts.push_str(&format!(
            "<script>const unrelatedSite = 'http://unrelated-site.test:{port}'</script>\
             <script src=/mutate.js></script>"
        ));
        for frame in ["login_frame", "frame_of_site"] {
            let path = format!("/pages/{frame}");
            html = html.replace(&path, &format!("{path}?{seed}"));
        }
    }
    Html(scripts + html.trim_start()).into_response()
}

/// A field of the page or of a frame in it, as `report.js` returns it.
#[derive(Debug, serde::Deserialize)]
pub struct ReportedField {
    pub right: Option<String>,
    pub value: String,
    pub masked: bool,
}

pub async fn report(page: &mut Page) -> Vec<ReportedField> {
    serde_json::from_value(page.evaluate("report()").await).unwrap()
}

impl ReportedField {
    /// Returns the part of a value that belongs into this field, if the value does.
    fn part<'a>(&self, name: &str, value: &'a str) -> Option<&'a str> {
        let right = self.right.as_deref()?;
        if right == name {
            return Some(value);
        }
        let index: usize = right.strip_prefix(name)?.strip_prefix('.')?.parse().ok()?;
        value.get(index..=index)
    }

    pub fn has(&self, name: &str, value: &str) -> bool {
        self.part(name, value) == Some(self.value.as_str())
    }
}

/// Returns the fields that have a value, or a part of it, that does not belong into them.
pub fn wrong_fields<'a>(fields: &'a [ReportedField], request: &Value) -> Vec<&'a ReportedField> {
    let values = request["values"].as_object().unwrap();
    let is_wrong = |field: &&ReportedField| {
        let found = field.value.to_lowercase();
        let mut leaked = values.iter().filter(|(name, value)| {
            let value = value.as_str().unwrap();
            let is_there = found.contains(value) || found.len() > 2 && value.contains(&found);
            is_there && field.part(name, value).is_none()
        });
        let is_cell = |(name, value): (&String, &Value)| {
            found.len() == 1 && field.has(name, value.as_str().unwrap())
        };
        leaked.next().is_some() || found.len() == 1 && !values.iter().any(is_cell)
    };
    fields.iter().filter(is_wrong).collect()
}
