//! Decides from a page of the site whether the profile is logged in.

use super::schedule::CheckResult;
use crate::{
    api::{
        auth_flow::{FlowChoiceType, FlowErrorCode},
        login_page::{ElementPresence, InspectedPage},
    },
    control::auth_connections::flow::{
        ExternalActionKind, FieldKind, PageFailure, PageFindings, PageOrigin, SessionExpiry,
    },
};

/// Statuses of a site that does not respond to this browser now, whether it is logged in or not.
const REFUSALS: [u16; 2] = [403, 429];

/// Returns what a page that was opened at `opened`, a page for members, shows, and the new expiry
/// of a session whose one is known. The order of the
/// rules is essential: evidence of the login precedes a form, which may be that of a new password.
pub(super) fn verdict(
    page: &InspectedPage,
    findings: &Result<PageFindings, PageFailure>,
    (opened, expiry): (&str, Option<&SessionExpiry>),
) -> CheckResult {
    let found = match findings {
        Ok(found) => found,
        Err(failure) => return CheckResult::Unknown(Some((*failure).into())),
    };
    match found.origin {
        PageOrigin::Internal => return unknown(FlowErrorCode::InternalAddress),
        PageOrigin::NotPermitted => return unknown(FlowErrorCode::OriginNotPermitted),
        // The site sends those who are not logged in there.
        PageOrigin::IdentityProvider { .. } => return CheckResult::LoggedOut,
        PageOrigin::Domain | PageOrigin::AllowedDomain => {}
    }
    let external = found.external.as_ref().map(|action| action.kind);
    if external == Some(ExternalActionKind::Captcha) {
        return unknown(FlowErrorCode::ExternalActionRequired);
    }
    let cookie = expiry.and_then(|expiry| {
        let mut cookies = page.evidence.session_cookies.iter();
        cookies.find(|cookie| cookie.id == expiry.cookie)
    });
    let logged_in = CheckResult::LoggedIn {
        expires_at: cookie.and_then(|cookie| Some(cookie.expires_at?.0)),
    };
    let is_visible = |presence| presence == ElementPresence::Visible;
    if is_visible(page.evidence.log_out) {
        return logged_in;
    }
    if requests_login(found) || is_visible(page.evidence.log_in) || page.http_status == Some(401) {
        return CheckResult::LoggedOut;
    }
    if found.evidence.member_content {
        return logged_in;
    }
    if page
        .http_status
        .is_some_and(|status| REFUSALS.contains(&status))
    {
        return unknown(FlowErrorCode::RefusedBySite);
    }
    // The cookies of other hosts are not described.
    let is_described = found.origin == PageOrigin::Domain;
    if is_described && expiry.is_some() && cookie.is_none() {
        return CheckResult::LoggedOut;
    }
    let has_login = page.evidence.log_in != ElementPresence::Absent;
    let exists = page.http_status.is_none_or(|status| status < 400);
    match page.url == opened && exists && !has_login {
        true => logged_in,
        false => CheckResult::Unknown(None),
    }
}

fn unknown(error: FlowErrorCode) -> CheckResult {
    CheckResult::Unknown(Some(error))
}

/// Returns whether the page has a form or a choice to log in.
fn requests_login(found: &PageFindings) -> bool {
    let mut fields = found.fields.iter();
    let is_of_login = |kind| {
        matches!(
            kind,
            FieldKind::Identifier | FieldKind::Password | FieldKind::Code
        )
    };
    let has_field = fields.any(|field| is_of_login(field.kind));
    let mut choices = found.choices.iter();
    let has_choice = choices.any(|choice| {
        matches!(
            choice.kind,
            FlowChoiceType::Account | FlowChoiceType::SsoProvider
        )
    });
    has_field || has_choice || found.external.is_some()
}

#[cfg(test)]
mod tests {
    use chrono::{SubsecRound, TimeDelta, Utc};
    use serde_json::{Value, json};

    use super::*;
    use crate::control::auth_connections::{
        flow::{
            InspectionContext,
            tests::inspection::{inspected, inspected_choice, inspected_field},
        },
        sites::ConnectionSites,
    };

    const OPENED: &str = "https://shop.test/account";
    const LOGGED_IN: CheckResult = CheckResult::LoggedIn { expires_at: None };

    fn check(parts: Value, expiry: Option<&SessionExpiry>) -> CheckResult {
        let sites = ConnectionSites {
            domain: "shop.test",
            allowed_domains: &["partner.test".to_owned()],
        };
        let context = InspectionContext {
            class_of: &|host| sites.origin_of(host),
            is_internal: &|address| address.is_loopback(),
            before: None,
            identifiers: &[],
        };
        let page = inspected(parts);
        let findings = PageFindings::from_inspection(&page, context);
        verdict(&page, &findings, (OPENED, expiry))
    }

    #[test]
    fn page_for_members_shows_the_login() {
        for parts in [
            json!({"url": OPENED}),
            json!({"evidence": {"log_out": "visible"}}),
            json!({"evidence": {"log_out": "hidden"}}),
            // A new password can be set.
            json!({
                "evidence": {"log_out": "visible"},
                "fields": [inspected_field("password", json!({}))],
            }),
            json!({"url": "https://partner.test/", "evidence": {"log_out": "visible"}}),
        ] {
            assert_eq!(check(parts.clone(), None), LOGGED_IN, "{parts}");
        }
    }

    #[test]
    fn form_or_way_to_log_in_shows_that_the_session_has_ended() {
        for parts in [
            json!({"url": OPENED, "fields": [inspected_field("password", json!({}))]}),
            json!({"fields": [inspected_field("username", json!({}))]}),
            json!({"choices": [inspected_choice("account", json!({}))]}),
            json!({"choices": [inspected_choice("sso_provider", json!({"provider": "google"}))]}),
            json!({"url": OPENED, "evidence": {"log_in": "visible"}}),
            json!({"url": OPENED, "evidence": {"log_in": "visible", "log_out": "hidden"}}),
            json!({"url": OPENED, "http_status": 401}),
            json!({"url": OPENED, "passkey": true}),
            json!({"url": "https://accounts.google.com/"}),
        ] {
            assert_eq!(
                check(parts.clone(), None),
                CheckResult::LoggedOut,
                "{parts}"
            );
        }
    }

    #[test]
    fn page_that_shows_neither_is_reported_with_its_reason() {
        for (parts, error) in [
            (
                json!({"unreachable": true}),
                Some(FlowErrorCode::SiteUnavailable),
            ),
            (
                json!({"url": OPENED, "http_status": 503}),
                Some(FlowErrorCode::SiteUnavailable),
            ),
            (
                json!({"url": OPENED, "http_status": 429}),
                Some(FlowErrorCode::RefusedBySite),
            ),
            (
                json!({"url": OPENED, "captcha": true, "evidence": {"log_in": "visible"}}),
                Some(FlowErrorCode::ExternalActionRequired),
            ),
            (
                json!({"url": "https://evil.test/", "evidence": {"log_out": "visible"}}),
                Some(FlowErrorCode::OriginNotPermitted),
            ),
            (
                json!({"url": OPENED, "addresses": ["127.0.0.1"]}),
                Some(FlowErrorCode::InternalAddress),
            ),
            (json!({"url": "https://shop.test/"}), None),
            (json!({"url": OPENED, "http_status": 404}), None),
            (
                json!({"url": OPENED, "evidence": {"log_in": "hidden"}}),
                None,
            ),
        ] {
            assert_eq!(
                check(parts.clone(), None),
                CheckResult::Unknown(error),
                "{parts}"
            );
        }
    }

    #[test]
    fn known_expiry_is_that_of_its_cookie() {
        let at = Utc::now().trunc_subsecs(3);
        let known = SessionExpiry {
            cookie: "b".to_owned(),
            at,
        };
        let later = at + TimeDelta::hours(1);
        let cookies = json!([
            {"id": "a", "expires_at": at},
            {"id": "b", "expires_at": later},
        ]);
        let parts = json!({"url": OPENED, "evidence": {"session_cookies": cookies}});
        let expires_at = Some(later);
        assert_eq!(
            check(parts.clone(), Some(&known)),
            CheckResult::LoggedIn { expires_at }
        );
        assert_eq!(check(parts, None), LOGGED_IN);
        // Its cookie is gone.
        let without = check(json!({"url": OPENED}), Some(&known));
        assert_eq!(without, CheckResult::LoggedOut);
    }
}
