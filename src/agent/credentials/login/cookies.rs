//! The cookies that show a login. Their values are not read.

use chrono::DateTime;

use super::digest::DigestKey;
use crate::{
    api::{login_page::InspectedCookie, public_suffix::registrable_domain, time::Timestamp},
    system::cdp::connection::CookieName,
};

/// The most cookies of a description.
const MAX_COOKIES: usize = 64;

/// The starts of the names of cookies that do not show a login, in lower case: those of bot
/// protection, load balancers and the protection of forms.
const UNRELATED: [&str; 17] = [
    "__cf",
    "cf_",
    "_cfuvid",
    "awsalb",
    "aws-waf",
    "datadome",
    "_abck",
    "ak_bmsc",
    "bm_",
    "incap_ses",
    "visid_incap",
    "nlbi_",
    "_px",
    "arraffinity",
    "bigipserver",
    "ts01",
    "__host-csrf",
];

/// Returns the cookies of a host's registrable domain that scripts cannot read, in their order.
pub(super) fn session_cookies(mut cookies: Vec<CookieName>, host: &str) -> Vec<CookieName> {
    cookies.retain(|cookie| {
        cookie.is_http_only && is_of_site(&cookie.domain, host) && !is_unrelated(&cookie.name)
    });
    cookies.sort();
    cookies
}

/// Describes cookies without their names. The ids are those of all agents.
pub(super) fn describe(cookies: &[CookieName]) -> Vec<InspectedCookie> {
    let digests = DigestKey::shared();
    let described = cookies.iter().map(|cookie| InspectedCookie {
        id: digests.digest(cookie.parts()),
        expires_at: cookie
            .expires_at_ms
            .and_then(DateTime::from_timestamp_millis)
            .map(Timestamp),
    });
    described.take(MAX_COOKIES).collect()
}

fn is_of_site(domain: &str, host: &str) -> bool {
    let domain = domain.trim_start_matches('.');
    let site = registrable_domain(host).unwrap_or(host);
    domain == site
        || domain
            .strip_suffix(site)
            .is_some_and(|rest| rest.ends_with('.'))
}

fn is_unrelated(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let has_form_token = name.contains("csrf") || name.contains("xsrf");
    has_form_token || UNRELATED.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(domain: &str, name: &str, is_http_only: bool) -> CookieName {
        CookieName {
            domain: domain.to_owned(),
            path: "/".to_owned(),
            name: name.to_owned(),
            is_http_only,
            expires_at_ms: None,
        }
    }

    #[test]
    fn cookies_of_the_site_that_scripts_cannot_read_show_a_login() {
        let sid = cookie("example.com", "sid", true);
        let auth = cookie("login.example.com", "auth", true);
        let cookies = vec![
            auth.clone(),
            sid.clone(),
            cookie("www.example.com", "theme", false),
            cookie(".example.com", "__cf_bm", true),
            cookie("www.example.com", "XSRF-TOKEN", true),
            cookie("notexample.com", "other", true),
            cookie("com", "suffix", true),
        ];
        assert_eq!(session_cookies(cookies, "www.example.com"), [sid, auth]);
        let own = cookie("127.0.0.1", "sid", true);
        assert_eq!(session_cookies(vec![own.clone()], "127.0.0.1"), [own]);
    }

    #[test]
    fn description_has_the_expiry_and_no_name() {
        let lasting = CookieName {
            expires_at_ms: Some(1_800_000_000_000),
            ..cookie("example.com", "sid", true)
        };
        let of_session = cookie("example.com", "other", true);
        let [first, second] = &describe(&[lasting, of_session])[..] else {
            panic!("two cookies");
        };
        let expiry = first.expires_at.map(|at| at.0.timestamp());
        assert_eq!((expiry, second.expires_at), (Some(1_800_000_000), None));
        assert_ne!(first.id, second.id);
        let many = vec![cookie("example.com", "sid", true); MAX_COOKIES + 1];
        let described = describe(&many);
        assert_eq!(described.len(), MAX_COOKIES);
        assert!(described.iter().all(|it| it.id == first.id));
    }
}
