//! The hosts that an auth connection permits.

use url::Url;

use super::flow::PageOrigin;
use crate::{
    api::{
        identity_providers::identity_provider_of,
        public_suffix::{is_same_site, is_within, registrable_domain},
    },
    control::store::AuthConnectionRow,
    loopback::is_loopback,
};

/// The domains of an auth connection.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionSites<'a> {
    pub domain: &'a str,
    pub allowed_domains: &'a [String],
}

impl<'a> ConnectionSites<'a> {
    /// Returns the domains of a connection.
    #[must_use]
    pub fn of(connection: &'a AuthConnectionRow) -> Self {
        ConnectionSites {
            domain: &connection.domain,
            allowed_domains: &connection.settings.allowed_domains,
        }
    }

    /// Returns the class of a host by its name. An allowed domain that is an identity provider's
    /// belongs to the site.
    #[must_use]
    pub fn origin_of(&self, host: &str) -> PageOrigin {
        let is_allowed = |domain: &String| {
            let has_subdomains = registrable_domain(domain).is_some();
            host == domain || has_subdomains && is_within(host, domain)
        };
        if is_same_site(host, self.domain) {
            return PageOrigin::Domain;
        }
        if self.allowed_domains.iter().any(is_allowed) {
            return PageOrigin::AllowedDomain;
        }
        match identity_provider_of(host) {
            Some(provider) => PageOrigin::IdentityProvider {
                provider: provider.to_owned(),
            },
            None => PageOrigin::NotPermitted,
        }
    }

    /// Checks the URL with which a login begins.
    ///
    /// # Errors
    /// Returns the rule that the URL breaks.
    pub fn check_login_url(&self, url: &Url, allow_http: bool) -> Result<(), &'static str> {
        if url.scheme() != "https" && !allow_http && !is_loopback(url) {
            return Err("must be an https URL");
        }
        let origin = self.origin_of(url.host_str().unwrap_or_default());
        match origin.is_permitted() {
            true => Ok(()),
            false => Err(
                "must be on the domain, on an allowed domain or on a well-known identity provider",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_url_is_on_a_permitted_host() {
        let allowed_domains = ["sso.partner.com".to_owned(), "localhost".to_owned()];
        let sites = ConnectionSites {
            domain: "www.example.com",
            allowed_domains: &allowed_domains,
        };
        let check = |url: &str| sites.check_login_url(&Url::parse(url).unwrap(), false);
        for good in [
            "https://example.com/login",
            "https://accounts.example.com:8443/?next=/",
            "https://sso.partner.com/",
            "https://eu.sso.partner.com/",
            "https://accounts.google.com/signin",
            "https://acme.okta.com/",
            "http://localhost:3000/login",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "http://example.com/login",
            "http://accounts.google.com/",
            "http://127.0.0.1/",
            "http://a.localhost/",
            "https://a.localhost/",
            "https://partner.com/",
            "https://notexample.com/",
            "https://example.com.evil.test/",
            "https://evil.test/?example.com",
            "https://10.0.0.1/",
            "https://[::1]/",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
        let with_http = Url::parse("http://example.com/login").unwrap();
        assert_eq!(sites.check_login_url(&with_http, true), Ok(()));
    }

    #[test]
    fn host_has_the_class_of_its_domain() {
        let sites = ConnectionSites {
            domain: "www.example.com",
            allowed_domains: &["auth.okta.com".to_owned(), "localhost".to_owned()],
        };
        let provider = |name: &str| PageOrigin::IdentityProvider {
            provider: name.to_owned(),
        };
        for (host, expected) in [
            ("example.com", PageOrigin::Domain),
            ("login.example.com", PageOrigin::Domain),
            ("auth.okta.com", PageOrigin::AllowedDomain),
            ("eu.auth.okta.com", PageOrigin::AllowedDomain),
            ("localhost", PageOrigin::AllowedDomain),
            ("other.okta.com", provider("okta")),
            ("accounts.google.com", provider("google")),
            ("a.localhost", PageOrigin::NotPermitted),
            ("example.com.evil.test", PageOrigin::NotPermitted),
            ("", PageOrigin::NotPermitted),
        ] {
            assert_eq!(sites.origin_of(host), expected, "{host}");
        }
    }
}
