//! Logins for which the stored credential suffices, at all sites.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{
    auth_login::{TestConnection, credential, dev_with, steps},
    dev::Dev,
    login_sites::LoginSites,
};

/// A site, and the properties of the credential and of the connection that it needs.
struct Case {
    site: &'static str,
    credential: Value,
    connection: Value,
    /// The number of forms that the site receives.
    forms: usize,
}

impl Case {
    fn new(site: &'static str, forms: usize) -> Case {
        Case {
            site,
            credential: json!({}),
            connection: json!({}),
            forms,
        }
    }
}

/// Asserts that a connection is logged in without a person, that each value has arrived once, and
/// that stream and timeline agree.
async fn assert_logs_in(dev: &Dev, sites: &LoginSites, case: Case) {
    let Case {
        site,
        credential: more,
        mut connection,
        forms,
    } = case;
    let name = credential(dev, site, &sites.ada, more).await;
    connection["credential"] = json!({"name": name});
    let connection = TestConnection::create(dev, sites, site, connection).await;
    let events = connection.login().await.rest().await;
    let states: Vec<Value> = events.into_iter().map(|event| event.data).collect();
    let last = states.last().unwrap();
    assert_eq!(last["flow_status"], "SUCCESS", "{site}: {states:#?}");
    assert!(
        states.iter().all(|state| state["who"] != "user"),
        "{site}: {states:#?}"
    );
    let timeline = connection.timeline().await;
    let mut timeline = steps(&timeline);
    timeline.retain(|step| !step.starts_with("INITIALIZED"));
    assert_eq!(steps(&states), timeline, "{site}");
    assert_eq!(
        sites.received_by(site).len(),
        forms,
        "{site}: {:?}",
        sites.received()
    );
    connection.assert_logged_in(sites, site, &sites.ada).await;
}

/// Logs in at several sites at once.
async fn assert_all_log_in(cases: impl FnOnce(&LoginSites) -> Vec<Case>) {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let cases = cases(&sites).into_iter();
    join_all(cases.map(|case| assert_logs_in(&dev, &sites, case))).await;
    dev.finish().await;
}

#[tokio::test]
async fn steps_of_password_forms_are_taken() {
    assert_all_log_in(|_| {
        vec![
            Case::new("two-steps.test", 2),
            Case::new("picker.test", 2),
            // One is the choice of the banner.
            Case::new("consent.test", 2),
        ]
    })
    .await;
}

#[tokio::test]
async fn slow_and_changing_pages_are_waited_for() {
    assert_all_log_in(|_| vec![Case::new("slow.test", 1), Case::new("rerender.test", 1)]).await;
}

#[tokio::test]
async fn forms_in_frames_and_shadow_trees_are_filled() {
    let in_frame = Case {
        // The site itself gets no form: the frame's does.
        ..Case::new("iframe.test", 0)
    };
    assert_all_log_in(|_| vec![in_frame, Case::new("shadow.test", 1)]).await;
}

#[tokio::test]
async fn one_time_codes_are_entered() {
    assert_all_log_in(|sites| {
        let with_secret = |site| Case {
            credential: json!({"totp_secret": sites.ada.totp_secret}),
            ..Case::new(site, 2)
        };
        vec![with_secret("totp.test"), with_secret("remember.test")]
    })
    .await;
}

#[tokio::test]
async fn security_answer_and_identity_provider_are_used() {
    assert_all_log_in(|sites| {
        let answer = json!({"What was the name of your first pet?": sites.ada.security_answer});
        vec![
            Case {
                credential: json!({ "values": answer }),
                ..Case::new("question.test", 2)
            },
            Case {
                credential: json!({"sso_provider": "google"}),
                connection: json!({"allowed_domains": ["idp.test"]}),
                ..Case::new("sso.test", 0)
            },
            Case {
                credential: json!({"sso_provider": "microsoft"}),
                ..Case::new("known-sso.test", 0)
            },
        ]
    })
    .await;
}

#[tokio::test]
async fn identity_provider_in_a_window_of_its_own_is_used() {
    assert_all_log_in(|_| {
        vec![Case {
            credential: json!({"sso_provider": "google"}),
            connection: json!({"allowed_domains": ["idp.test"]}),
            ..Case::new("popup.test", 0)
        }]
    })
    .await;
}

#[tokio::test]
async fn login_page_is_discovered() {
    assert_all_log_in(|_| {
        vec![Case {
            connection: json!({"login_url": null}),
            ..Case::new("discover.test", 1)
        }]
    })
    .await;
}
