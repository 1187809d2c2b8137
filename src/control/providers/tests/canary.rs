//! Tokens and values appear in no error and in no log, whatever the provider responds.

use std::{fmt::Write, sync::Arc};

use http::header;
use parking_lot::Mutex;
use secrecy::ExposeSecret;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use super::{
    api::{KINDS, PASSWORD, TOTP_SECRET, login, respond},
    *,
};
use crate::{
    control::providers::{ProviderClients, check_token},
    system::outbound::tests::server::Reply,
};

/// Records the fields of all events and spans, of every level.
#[derive(Clone, Default)]
struct LogCapture(Arc<Mutex<String>>);

struct FieldWriter<'a>(&'a mut String);

impl Visit for FieldWriter<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = writeln!(self.0, "{field}={value:?}");
    }
}

impl Subscriber for LogCapture {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        attributes.record(&mut FieldWriter(&mut self.0.lock()));
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, values: &Record<'_>) {
        values.record(&mut FieldWriter(&mut self.0.lock()));
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut FieldWriter(&mut self.0.lock()));
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Responses with the secrets at places where careless code shows them.
fn leaking_replies() -> Vec<fn() -> Reply> {
    vec![
        || Reply::Failure(401, "canary-password"),
        || Reply::Failure(403, "canary-token-of-the-provider"),
        || Reply::Failure(500, "canary-password"),
        || Reply::Failure(418, "canary-password"),
        || Reply::Text(r#""canary-password"#),
        || Reply::Text(r#""canary-password""#),
        || Reply::Text(r#"[{"id": "canary-password", "vault": "canary-password"}]"#),
        || Reply::Text(r#"[{"id": "../canary-password", "vault": {"id": "canary-password"}}]"#),
        || Reply::Text(r#"{"data": "canary-password"}"#),
        || Reply::Text(r#"{"data": {"data": "canary-password"}}"#),
        || Reply::Text(r#"{"id": "canary-password", "vault": {"id": "canary-password"}}"#),
        || {
            Reply::Header(
                302,
                header::LOCATION,
                "https://a.example/canary-password".to_owned(),
            )
        },
        || {
            Reply::Header(
                302,
                header::LOCATION,
                "/canary-token-of-the-provider".to_owned(),
            )
        },
        || Reply::Header(429, header::RETRY_AFTER, "canary-password".to_owned()),
    ]
}

#[tokio::test]
async fn secrets_appear_in_no_error_and_no_log() {
    let capture = LogCapture::default();
    let _guard = tracing::subscriber::set_default(capture.clone());
    let impatient = ProviderTimings {
        longest_wait: Duration::ZERO,
        ..timings()
    };
    let mut texts = String::new();
    for kind in KINDS {
        let server = ScriptedServer::start(move |request| respond(kind, request)).await;
        let healthy = client(kind, &server);
        assert_eq!(healthy.items().await.unwrap().len(), 1);
        let secrets = healthy.fetch(&login(kind)).await.ok().unwrap();
        assert_eq!(secrets.password.unwrap().expose_secret(), PASSWORD);

        for reply in leaking_replies() {
            let server = ScriptedServer::start(move |_| reply()).await;
            let config = config(kind, &server);
            let clients = ProviderClients::new(loopback_client(), impatient);
            let client = clients.client(&config).unwrap();
            let failures = [
                client.items().await.err(),
                client.fetch(&login(kind)).await.err(),
                clients.test(&config).await.err(),
            ];
            for error in failures.into_iter().flatten() {
                writeln!(texts, "{error} {error:?}").unwrap();
            }
            let found = clients.find_by_host(&[config], "example.com").await;
            writeln!(texts, "{found:?}").unwrap();
        }
        let mut config = config(kind, &server);
        config.token = format!("{TOKEN}\n").into();
        let error = ProviderClient::new(&config, &loopback_client(), timings());
        writeln!(texts, "{:?} {:?}", error.err(), check_token(&config.token)).unwrap();
    }
    let logs = capture.0.lock().clone();
    // The check would find something.
    assert!(texts.lines().count() > 50 && logs.contains("request to a provider failed"));
    for secret in [TOKEN, PASSWORD, TOTP_SECRET] {
        assert!(!texts.contains(secret), "{secret} in {texts}");
        assert!(!logs.contains(secret), "{secret} in {logs}");
    }
}

#[tokio::test]
async fn capture_finds_a_secret_that_is_logged() {
    let capture = LogCapture::default();
    let _guard = tracing::subscriber::set_default(capture.clone());
    tracing::trace!(token = TOKEN, "leaked");
    assert!(capture.0.lock().contains(TOKEN));
}
