//! The login sites of the tests themselves: each logs a member in with the right values only.

use super::visitor::{VisitedPage, Visitor};
use crate::support::login_sites::{LoginSites, Member, ReceivedForm};

const NEW_PASSWORD: &str = "a-new-password-of-the-member";
const WRONG: &str = "not-the-value";

/// Submits a user name and a password.
async fn log_in(
    visitor: &mut Visitor<'_>,
    site: &str,
    member: &Member,
    password: &str,
) -> VisitedPage {
    let fields = [("username", member.user.as_str()), ("password", password)];
    visitor.submit(site, "/login", &fields).await
}

/// Asserts that the visitor sees the page of members.
async fn assert_logged_in(visitor: &mut Visitor<'_>, site: &str, member: &Member) {
    assert_eq!(visitor.user(site).await.as_ref(), Some(&member.user));
    let page = visitor.open(site, "/account").await;
    assert!(page.html.contains("Log out</a>"), "{}", page.html);
    assert!(page.html.contains(&member.user), "{}", page.html);
}

/// Asserts that there is no session, and that the page of members leads to the login.
async fn assert_logged_out(visitor: &mut Visitor<'_>, site: &str) {
    assert_eq!(visitor.user(site).await, None, "{site}");
    let page = visitor.open(site, "/account").await;
    assert!(!page.url.path().starts_with("/account"), "{}", page.url);
    assert!(!page.html.contains("Log out"), "{}", page.html);
}

#[tokio::test]
async fn password_sites_log_in_with_the_right_password_only() {
    let sites = LoginSites::serve().await;
    let with_password = [
        "password.test",
        "elsewhere.test",
        "expiry.test",
        "consent.test",
        "shadow.test",
        "rerender.test",
        "slow.test",
        "sso.test",
    ];
    for site in with_password {
        let mut visitor = Visitor::new(&sites);
        let login = visitor.open(site, "/").await;
        assert!(login.html.contains("<a href=\"/login\">Log in</a>"));
        let page = log_in(&mut visitor, site, &sites.ada, WRONG).await;
        let expected = "The user name or the password is wrong.";
        assert_eq!(page.alert(), Some(expected), "{site}");
        assert!(page.html.contains(&sites.ada.user) && page.html.contains("name=password"));
        assert_logged_out(&mut visitor, site).await;
        let page = log_in(&mut visitor, site, &sites.ada, &sites.ada.password).await;
        assert_eq!((page.status, page.alert()), (200, None));
        assert_logged_in(&mut visitor, site, &sites.ada).await;
        let page = visitor.open(site, "/logout").await;
        assert_eq!(page.url.path(), "/");
        assert_logged_out(&mut visitor, site).await;
    }
    let login = |password: &str| {
        let (name, password) = ("password".to_owned(), password.to_owned());
        vec![
            ("username".to_owned(), sites.ada.user.clone()),
            (name, password),
        ]
    };
    let form = |password: &str| ReceivedForm {
        site: "password.test",
        path: "/login".to_owned(),
        fields: login(password),
    };
    let received = sites.received_by("password.test");
    assert_eq!(received, [form(WRONG), form(&sites.ada.password)]);
    let places = with_password.map(|site| format!("{site} /login password"));
    assert_eq!(sites.places_of(&sites.ada.password), places);
    let urls = sites.urls.all().join(" ");
    assert!(!urls.contains(&sites.ada.password) && urls.contains("/login"));
}

#[tokio::test]
async fn consent_is_stored_and_hides_the_banner() {
    let sites = LoginSites::serve().await;
    let mut visitor = Visitor::new(&sites);
    let page = visitor.open("consent.test", "/login").await;
    assert!(page.html.contains("Only necessary"));
    let choice = [("choice", "necessary")];
    let stored = visitor.submit("consent.test", "/consent", &choice).await;
    assert_eq!(stored.status, 204);
    let page = visitor.open("consent.test", "/login").await;
    assert!(!page.html.contains("Only necessary"));
}

#[tokio::test]
async fn two_steps_request_the_password_of_a_member_only() {
    let sites = LoginSites::serve().await;
    let mut visitor = Visitor::new(&sites);
    let site = "two-steps.test";
    assert_eq!(visitor.open(site, "/password").await.url.path(), "/login");
    let unknown = [("identifier", "eve@example.com")];
    let page = visitor.submit(site, "/login", &unknown).await;
    let expected = "We could not find an account with that email address.";
    assert_eq!(page.alert(), Some(expected));
    let page = submit_steps(&mut visitor, site, "/login", &sites.ada, WRONG).await;
    assert_eq!(page.alert(), Some("Wrong password. Try again."));
    assert!(page.html.contains(&sites.ada.user));
    assert_logged_out(&mut visitor, site).await;
    let right = [("password", sites.ada.password.as_str())];
    let page = visitor.submit(site, "/password", &right).await;
    assert_eq!(page.url.path(), "/account");
    assert_logged_in(&mut visitor, site, &sites.ada).await;
}

/// Submits a user name and a password on pages of their own.
async fn submit_steps(
    visitor: &mut Visitor<'_>,
    site: &str,
    path: &str,
    member: &Member,
    password: &str,
) -> VisitedPage {
    let identifier = [("identifier", member.user.as_str())];
    let page = visitor.submit(site, path, &identifier).await;
    assert_eq!(page.url.path(), "/password");
    let password = [("password", password)];
    visitor.submit(site, "/password", &password).await
}

#[tokio::test]
async fn picker_lists_both_accounts_and_another_one() {
    let sites = LoginSites::serve().await;
    let site = "picker.test";
    let mut visitor = Visitor::new(&sites);
    let page = visitor.open(site, "/login").await;
    for label in [&sites.ada.user, &sites.grace.user, "Use another account"] {
        assert!(page.html.contains(label), "{}", page.html);
    }
    let choice = [("account", sites.grace.user.as_str())];
    let page = visitor.submit(site, "/choose", &choice).await;
    assert_eq!(page.url.path(), "/password");
    let wrong = [("password", WRONG)];
    let page = visitor.submit(site, "/password", &wrong).await;
    assert!(page.alert().is_some());
    assert_logged_out(&mut visitor, site).await;
    let right = [("password", sites.grace.password.as_str())];
    visitor.submit(site, "/password", &right).await;
    assert_logged_in(&mut visitor, site, &sites.grace).await;
    let mut other = Visitor::new(&sites);
    submit_steps(
        &mut other,
        site,
        "/identifier",
        &sites.ada,
        &sites.ada.password,
    )
    .await;
    assert_logged_in(&mut other, site, &sites.ada).await;
}

#[tokio::test]
async fn one_time_code_is_valid_once() {
    let sites = LoginSites::serve().await;
    let site = "totp.test";
    let mut visitor = Visitor::new(&sites);
    assert_eq!(visitor.open(site, "/code").await.url.path(), "/login");
    let page = log_in(&mut visitor, site, &sites.ada, WRONG).await;
    assert!(page.alert().is_some());
    let page = log_in(&mut visitor, site, &sites.ada, &sites.ada.password).await;
    assert_eq!(page.url.path(), "/code");
    assert_logged_out(&mut visitor, site).await;
    let wrong = [("code", "000")];
    let page = visitor.submit(site, "/code", &wrong).await;
    assert!(page.alert().is_some() && page.html.contains("name=code"));
    let code = sites.ada.totp_code();
    let fields = [("code", code.as_str())];
    visitor.submit(site, "/code", &fields).await;
    assert_logged_in(&mut visitor, site, &sites.ada).await;
    let mut other = Visitor::new(&sites);
    log_in(&mut other, site, &sites.ada, &sites.ada.password).await;
    let page = other.submit(site, "/code", &fields).await;
    assert!(page.alert().is_some());
    assert_logged_out(&mut other, site).await;
}

#[tokio::test]
async fn known_device_needs_no_code() {
    let sites = LoginSites::serve().await;
    let site = "remember.test";
    let mut visitor = Visitor::new(&sites);
    let page = log_in(&mut visitor, site, &sites.ada, &sites.ada.password).await;
    assert!(page.html.contains("Remember this device"));
    let wrong = [("code", "000"), ("remember", "on")];
    assert!(
        visitor
            .submit(site, "/code", &wrong)
            .await
            .alert()
            .is_some()
    );
    assert_logged_out(&mut visitor, site).await;
    let code = sites.ada.totp_code();
    let fields = [("code", code.as_str()), ("remember", "on")];
    visitor.submit(site, "/code", &fields).await;
    assert_logged_in(&mut visitor, site, &sites.ada).await;
    assert_eq!(visitor.cookie_names(site), ["device", "session"]);
    sites.expire_sessions();
    assert_logged_out(&mut visitor, site).await;
    let page = log_in(&mut visitor, site, &sites.grace, &sites.grace.password).await;
    assert_eq!(page.url.path(), "/code");
    log_in(&mut visitor, site, &sites.ada, &sites.ada.password).await;
    assert_logged_in(&mut visitor, site, &sites.ada).await;
    let mut other = Visitor::new(&sites);
    log_in(&mut other, site, &sites.grace, &sites.grace.password).await;
    let code = sites.grace.totp_code();
    other.submit(site, "/code", &[("code", &code)]).await;
    assert_logged_in(&mut other, site, &sites.grace).await;
    assert_eq!(other.cookie_names(site), ["session"]);
}

#[tokio::test]
async fn sms_code_is_replaced_by_a_new_one() {
    let sites = LoginSites::serve().await;
    let site = "sms.test";
    let mut visitor = Visitor::new(&sites);
    log_in(&mut visitor, site, &sites.ada, &sites.ada.password).await;
    let first = sites.sms_code().await;
    let page = visitor.submit(site, "/code", &[("code", "none")]).await;
    assert_eq!(page.alert(), Some("That code is wrong. Try again."));
    let page = visitor.submit(site, "/code/resend", &[]).await;
    assert_eq!(page.url.path(), "/code");
    let second = sites.sms_code().await;
    // Both codes are random: one of a million runs has the same ones.
    if first != second {
        let page = visitor.submit(site, "/code", &[("code", &first)]).await;
        assert!(page.alert().is_some());
        assert_logged_out(&mut visitor, site).await;
    }
    visitor.submit(site, "/code", &[("code", &second)]).await;
    assert_logged_in(&mut visitor, site, &sites.ada).await;
}

#[tokio::test]
async fn push_logs_in_after_the_approval() {
    let sites = LoginSites::serve().await;
    let site = "push.test";
    let mut visitor = Visitor::new(&sites);
    let page = log_in(&mut visitor, site, &sites.ada, &sites.ada.password).await;
    assert!(page.html.contains("Approve sign in request"));
    let status = visitor.open(site, "/push/status").await;
    assert_eq!(status.html, r#"{"approved":false}"#);
    assert_eq!(
        visitor.open(site, "/push/finish").await.url.path(),
        "/login"
    );
    assert_logged_out(&mut visitor, site).await;
    sites.approve_push().await;
    let status = visitor.open(site, "/push/status").await;
    assert_eq!(status.html, r#"{"approved":true}"#);
    let page = visitor.open(site, "/push/finish").await;
    assert_eq!(page.url.path(), "/account");
    assert_logged_in(&mut visitor, site, &sites.ada).await;
}

#[tokio::test]
async fn security_question_needs_the_answer() {
    let sites = LoginSites::serve().await;
    let site = "question.test";
    let mut visitor = Visitor::new(&sites);
    let page = log_in(&mut visitor, site, &sites.ada, &sites.ada.password).await;
    assert!(page.html.contains("What was the name of your first pet?"));
    let page = visitor
        .submit(site, "/question", &[("answer", WRONG)])
        .await;
    assert_eq!(page.alert(), Some("That answer is wrong."));
    assert_logged_out(&mut visitor, site).await;
    let answer = [("answer", sites.ada.security_answer.as_str())];
    visitor.submit(site, "/question", &answer).await;
    assert_logged_in(&mut visitor, site, &sites.ada).await;
}

#[tokio::test]
async fn captcha_is_required_for_each_attempt() {
    let sites = LoginSites::serve().await;
    let site = "captcha.test";
    let mut visitor = Visitor::new(&sites);
    let page = visitor.open(site, "/login").await;
    assert!(page.html.contains("I'm not a robot"));
    for (password, is_solved, alert) in [
        (sites.ada.password.as_str(), false, Some("not a robot")),
        (WRONG, true, Some("password is wrong")),
        (sites.ada.password.as_str(), true, None),
    ] {
        assert_logged_out(&mut visitor, site).await;
        let token = match is_solved {
            true => visitor.submit(site, "/captcha", &[]).await.html,
            false => String::new(),
        };
        let user = sites.ada.user.as_str();
        let fields = [
            ("username", user),
            ("password", password),
            ("captcha_token", token.as_str()),
        ];
        let page = visitor.submit(site, "/login", &fields).await;
        let text = page.alert();
        assert_eq!(text.is_some(), alert.is_some());
        assert!(text.unwrap_or_default().contains(alert.unwrap_or_default()));
    }
    assert_logged_in(&mut visitor, site, &sites.ada).await;
}

#[tokio::test]
async fn expired_password_is_changed_before_the_session() {
    let sites = LoginSites::serve().await;
    let site = "change.test";
    let mut visitor = Visitor::new(&sites);
    let old = sites.ada.password.as_str();
    let page = log_in(&mut visitor, site, &sites.ada, old).await;
    assert!(page.html.contains("Your password has expired"));
    let change = |current, new, confirm| [("current", current), ("new", new), ("confirm", confirm)];
    for (fields, alert) in [
        (
            change(WRONG, NEW_PASSWORD, NEW_PASSWORD),
            "The current password is wrong.",
        ),
        (
            change(old, NEW_PASSWORD, WRONG),
            "The new passwords do not match.",
        ),
        (
            change(old, "short", "short"),
            "The new password is too short.",
        ),
        (
            change(old, old, old),
            "The new password must differ from the current one.",
        ),
    ] {
        let page = visitor.submit(site, "/change", &fields).await;
        assert_eq!(page.alert(), Some(alert));
        assert_logged_out(&mut visitor, site).await;
    }
    visitor
        .submit(site, "/change", &change(old, NEW_PASSWORD, NEW_PASSWORD))
        .await;
    assert_logged_in(&mut visitor, site, &sites.ada).await;
    assert_eq!(sites.password(site, &sites.ada), NEW_PASSWORD);
    assert_eq!(sites.password("password.test", &sites.ada), old);
    let mut other = Visitor::new(&sites);
    assert!(
        log_in(&mut other, site, &sites.ada, old)
            .await
            .alert()
            .is_some()
    );
    log_in(&mut other, site, &sites.ada, NEW_PASSWORD).await;
    assert_logged_in(&mut other, site, &sites.ada).await;
}

#[tokio::test]
async fn expired_session_leads_to_the_login() {
    let sites = LoginSites::serve().await;
    let mut visitor = Visitor::new(&sites);
    for site in ["expiry.test", "password.test"] {
        log_in(&mut visitor, site, &sites.ada, &sites.ada.password).await;
    }
    sites.expire_sessions_of("expiry.test");
    assert_logged_in(&mut visitor, "password.test", &sites.ada).await;
    let page = visitor.open("expiry.test", "/account").await;
    assert_eq!(page.url.path(), "/login");
    assert!(page.html.contains("Your session has expired."));
    assert_logged_out(&mut visitor, "expiry.test").await;
    sites.set_password("expiry.test", &sites.ada, NEW_PASSWORD);
    let page = log_in(&mut visitor, "expiry.test", &sites.ada, &sites.ada.password).await;
    assert!(page.alert().is_some());
    log_in(&mut visitor, "expiry.test", &sites.ada, NEW_PASSWORD).await;
    assert_logged_in(&mut visitor, "expiry.test", &sites.ada).await;
}

#[tokio::test]
async fn identity_provider_logs_in_to_its_sites() {
    let sites = LoginSites::serve().await;
    let mut visitor = Visitor::new(&sites);
    let page = visitor.open("sso.test", "/auth/start").await;
    assert_eq!(page.url.host_str(), Some("idp.test"));
    assert_eq!(page.url.path(), "/signin");
    let page = submit_steps(&mut visitor, "idp.test", "/signin", &sites.ada, WRONG).await;
    assert!(page.alert().is_some());
    assert_logged_out(&mut visitor, "sso.test").await;
    let right = [("password", sites.ada.password.as_str())];
    let page = visitor.submit("idp.test", "/password", &right).await;
    assert_eq!(page.url.as_str(), sites.url("sso.test", "/account"));
    assert_logged_in(&mut visitor, "sso.test", &sites.ada).await;
    assert_eq!(
        sites.places_of(&sites.ada.password),
        ["idp.test /password password"]
    );
    // The session of the provider is enough for another site.
    let page = visitor.open("popup.test", "/login").await;
    assert!(page.html.contains("Sign in with Google"));
    let page = visitor.open("popup.test", "/auth/start").await;
    assert!(page.html.contains("opener.postMessage"));
    assert_logged_in(&mut visitor, "popup.test", &sites.ada).await;
    let forged = "/auth/callback?code=1&state=2";
    assert_eq!(visitor.open("popup.test", forged).await.status, 400);
}

#[tokio::test]
async fn frame_logs_in_to_the_page_around_it() {
    let sites = LoginSites::serve().await;
    let mut visitor = Visitor::new(&sites);
    let page = visitor.open("iframe.test", "/login").await;
    assert!(page.html.contains(&sites.url("login.iframe.test", "/form")));
    let user = ("username", sites.ada.user.as_str());
    let wrong = [user, ("password", WRONG)];
    let page = visitor.submit("login.iframe.test", "/form", &wrong).await;
    assert!(page.alert().is_some());
    assert_logged_out(&mut visitor, "iframe.test").await;
    let right = [user, ("password", sites.ada.password.as_str())];
    visitor.submit("login.iframe.test", "/form", &right).await;
    assert_logged_in(&mut visitor, "iframe.test", &sites.ada).await;
}

#[tokio::test]
async fn redirect_leaves_the_site_after_the_user_name() {
    let sites = LoginSites::serve().await;
    let mut visitor = Visitor::new(&sites);
    let user = [("identifier", sites.ada.user.as_str())];
    let page = visitor.submit("redirect.test", "/login", &user).await;
    assert_eq!(page.url.as_str(), "http://169.254.169.254/latest/");
    sites.redirect_to(&sites.url("elsewhere.test", "/login"));
    let page = visitor.submit("redirect.test", "/login", &user).await;
    assert_eq!(page.url.host_str(), Some("elsewhere.test"));
    assert!(page.html.contains("name=password"));
    assert_logged_out(&mut visitor, "redirect.test").await;
}

#[tokio::test]
async fn discover_has_its_login_behind_a_link() {
    let sites = LoginSites::serve().await;
    let site = "discover.test";
    let mut visitor = Visitor::new(&sites);
    assert_eq!(visitor.open(site, "/login").await.status, 404);
    let page = visitor.open(site, "/").await;
    assert!(
        page.html
            .contains("<a href=\"/members/sign-in\">Log in</a>")
    );
    let user = ("username", sites.ada.user.as_str());
    for (password, is_right) in [(WRONG, false), (sites.ada.password.as_str(), true)] {
        let fields = [user, ("password", password)];
        let page = visitor.submit(site, "/members/sign-in", &fields).await;
        assert_eq!(page.alert().is_none(), is_right);
    }
    assert_logged_in(&mut visitor, site, &sites.ada).await;
}

#[tokio::test]
async fn down_site_responds_with_an_error_page() {
    let sites = LoginSites::serve().await;
    let mut visitor = Visitor::new(&sites);
    for path in ["/", "/login", "/account"] {
        let page = visitor.open("down.test", path).await;
        assert_eq!(page.status, 503);
        assert!(page.html.contains("Service unavailable"));
    }
    assert_eq!(visitor.open("unknown.test", "/").await.status, 404);
}
