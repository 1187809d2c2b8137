//! The cookies that show a login. Their values are not read.

use crate::{api::public_suffix::registrable_domain, system::cdp::connection::CookieName};

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
}
