//! A person who signs in to each site on the page: to some with the keyboard alone, to the others
//! with the mouse. No value is stored.

use futures::future::join_all;
use serde_json::{Value, json};

use super::run_on;
use crate::support::{
    auth_login::{TestConnection, dev_with},
    login_sites::LoginSites,
};

/// The password that replaces an expired one.
const NEW_PASSWORD: &str = "A-new-password-of-ada-1";

/// A site, and what the person needs to know.
struct Visit {
    site: &'static str,
    /// The properties of the connection.
    connection: Value,
    /// The text of the button that the person selects, if there is one.
    choice: Option<String>,
    /// The page of the phone that has the one-time code.
    code: Option<&'static str>,
    /// Whether the person first enters a wrong password.
    is_mistaken: bool,
    /// The status that the login has in the end.
    status: &'static str,
}

impl Visit {
    fn new(site: &'static str) -> Visit {
        Visit {
            site,
            connection: json!({}),
            choice: None,
            code: None,
            is_mistaken: false,
            status: "SUCCESS",
        }
    }

    fn with_code(site: &'static str, code: &'static str) -> Visit {
        Visit {
            code: Some(code),
            ..Visit::new(site)
        }
    }

    fn with_identity_provider(site: &'static str) -> Visit {
        Visit {
            connection: json!({"allowed_domains": ["idp.test"]}),
            choice: Some("Google".to_owned()),
            ..Visit::new(site)
        }
    }
}

/// Returns the knowledge of the scenario about a visit, with the response to its begin.
fn person(sites: &LoginSites, visit: &Visit, begun: &Value) -> Value {
    json!({
        "site": visit.site,
        "url": begun["hosted_url"],
        "user": sites.ada.user,
        "password": sites.ada.password,
        "newPassword": NEW_PASSWORD,
        "answer": sites.ada.security_answer,
        "choice": visit.choice,
        "code": visit.code,
        "isMistaken": visit.is_mistaken,
        "isSuccess": visit.status == "SUCCESS",
    })
}

/// Visits several sites at once. Returns them.
async fn visit_all(visits: impl FnOnce(&LoginSites) -> Vec<Visit>) -> LoginSites {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let visits = visits(&sites);
    let beginning = visits.iter().map(async |visit| {
        let fields = visit.connection.clone();
        let connection = TestConnection::create(&dev, &sites, visit.site, fields).await;
        let begun = connection.begin().await;
        (connection, person(&sites, visit, &begun))
    });
    let (connections, people): (Vec<TestConnection>, Vec<Value>) =
        join_all(beginning).await.into_iter().unzip();
    run_on(&dev, "sites.mjs", &[], &json!(people)).await;
    for (connection, visit) in connections.iter().zip(&visits) {
        let found = connection.get().await;
        assert_eq!(found["flow_status"], visit.status, "{found:#}");
        let timeline = connection.timeline().await;
        let last = timeline.last().unwrap();
        assert_eq!(last["status"], visit.status, "{timeline:#?}");
    }
    dev.finish().await;
    sites
}

#[tokio::test]
async fn person_signs_in_with_passwords() {
    let sites = visit_all(|sites| {
        vec![
            Visit {
                is_mistaken: true,
                ..Visit::new("password.test")
            },
            Visit::new("two-steps.test"),
            Visit {
                choice: Some(sites.ada.user.clone()),
                ..Visit::new("picker.test")
            },
            Visit {
                connection: json!({"login_url": null}),
                ..Visit::new("discover.test")
            },
        ]
    })
    .await;
    // The wrong password, and the right one.
    assert_eq!(sites.received_by("password.test").len(), 2);
}

#[tokio::test]
async fn person_signs_in_on_difficult_pages() {
    visit_all(|_| {
        ["slow.test", "rerender.test", "iframe.test", "shadow.test"]
            .map(Visit::new)
            .into()
    })
    .await;
}

#[tokio::test]
async fn person_signs_in_with_codes_and_approvals() {
    visit_all(|_| {
        vec![
            Visit::with_code("totp.test", "/authenticator"),
            Visit::with_code("remember.test", "/authenticator"),
            Visit::with_code("sms.test", "/text-message"),
            Visit::new("push.test"),
        ]
    })
    .await;
}

#[tokio::test]
async fn person_signs_in_with_further_answers() {
    let sites = visit_all(|_| {
        [
            "question.test",
            "change.test",
            "consent.test",
            "expiry.test",
        ]
        .map(Visit::new)
        .into()
    })
    .await;
    assert_eq!(sites.password("change.test", &sites.ada), NEW_PASSWORD);
}

#[tokio::test]
async fn person_signs_in_at_an_identity_provider_and_sees_a_failure() {
    visit_all(|_| {
        vec![
            Visit::with_identity_provider("sso.test"),
            Visit::with_identity_provider("popup.test"),
            Visit {
                status: "FAILED",
                ..Visit::new("redirect.test")
            },
        ]
    })
    .await;
}
