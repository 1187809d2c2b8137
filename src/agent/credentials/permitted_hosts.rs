//! The hosts whose frames may have the values of a fill.

use serde::Serialize;
use url::{Host, Url};

use crate::{
    api::{
        credential_fill::FillDomain,
        public_suffix::{is_within, registrable_domain},
    },
    loopback,
};

/// The hosts that may have the values, and whether without TLS. The script in the page compares its
/// origin with the same rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PermittedHosts {
    hosts: Vec<PermittedHost>,
    allow_http: bool,
}

/// A host, and possibly all names below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct PermittedHost {
    host: String,
    subdomains: bool,
}

impl PermittedHost {
    /// Returns the host of an entry of `allowed_domains`, with its subdomains. A public suffix has
    /// none that belong to it.
    fn of_allowed(domain: &FillDomain) -> Self {
        let host = domain.host().to_string();
        let subdomains = match domain.host() {
            Host::Domain(name) => registrable_domain(name).is_some(),
            Host::Ipv4(_) | Host::Ipv6(_) => false,
        };
        Self { host, subdomains }
    }

    /// Returns the registrable domain of the values' own domain. A host that has none stands for
    /// itself.
    fn of_credential(domain: &FillDomain) -> Self {
        match domain.host() {
            Host::Domain(name) => match registrable_domain(name) {
                Some(registrable) => Self {
                    host: registrable.to_owned(),
                    subdomains: true,
                },
                None => Self::of_allowed(domain),
            },
            Host::Ipv4(_) | Host::Ipv6(_) => Self::of_allowed(domain),
        }
    }

    fn contains(&self, host: &str) -> bool {
        match self.subdomains {
            true => is_within(host, &self.host),
            false => host == self.host,
        }
    }
}

impl PermittedHosts {
    /// Permits the registrable domain of `domain`, and `allowed` as they are.
    pub(super) fn new(domain: &FillDomain, allowed: &[FillDomain], allow_http: bool) -> Self {
        let own = PermittedHost::of_credential(domain);
        let hosts = allowed.iter().map(PermittedHost::of_allowed);
        Self {
            hosts: std::iter::once(own).chain(hosts).collect(),
            allow_http,
        }
    }

    /// Whether a frame with this address may have the values.
    pub(super) fn permits(&self, url: &str) -> bool {
        let Ok(url) = Url::parse(url) else {
            return false;
        };
        let is_secure = match url.scheme() {
            "https" => true,
            "http" => self.allow_http || loopback::is_loopback(&url),
            _ => false,
        };
        let host = url.host_str().unwrap_or_default();
        is_secure && self.hosts.iter().any(|permitted| permitted.contains(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(domain: &str, allowed: &[&str], allow_http: bool) -> PermittedHosts {
        let parse = |text: &str| FillDomain::parse(text).unwrap();
        let allowed: Vec<_> = allowed.iter().map(|text| parse(text)).collect();
        PermittedHosts::new(&parse(domain), &allowed, allow_http)
    }

    #[test]
    fn registrable_domain_is_permitted_with_tls() {
        let hosts = hosts("login.example.co.uk", &[], false);
        for url in [
            "https://example.co.uk/",
            "https://login.example.co.uk/a",
            "https://other.example.co.uk:8443/",
        ] {
            assert!(hosts.permits(url), "{url}");
        }
        for url in [
            "http://example.co.uk/",
            "https://co.uk/",
            "https://other.co.uk/",
            "https://notexample.co.uk/",
            "https://example.co.uk.evil.test/",
            "https://example.co.uk@evil.test/",
            "about:blank",
            "data:text/html,",
            "file:///example.co.uk",
            "",
        ] {
            assert!(!hosts.permits(url), "{url}");
        }
    }

    #[test]
    fn allowed_domain_is_not_extended() {
        let hosts = hosts(
            "example.com",
            &["sso.partner.com", "github.io", "com"],
            false,
        );
        assert!(hosts.permits("https://sso.partner.com/"));
        assert!(hosts.permits("https://eu.sso.partner.com/"));
        assert!(hosts.permits("https://github.io/"));
        for url in [
            "https://partner.com/",
            "https://www.partner.com/",
            "https://user.github.io/",
            "https://partner2.com/",
        ] {
            assert!(!hosts.permits(url), "{url}");
        }
    }

    #[test]
    fn neighbour_under_a_public_suffix_is_refused() {
        let hosts = hosts("user.github.io", &[], false);
        assert!(hosts.permits("https://user.github.io/"));
        assert!(!hosts.permits("https://evil.github.io/"));
        assert!(!hosts.permits("https://github.io/"));
    }

    #[test]
    fn plain_http_is_permitted_for_loopback_or_on_request() {
        assert!(hosts("localhost", &[], false).permits("http://localhost:3000/"));
        assert!(hosts("127.0.0.1", &[], false).permits("http://127.0.0.1:3000/"));
        assert!(hosts("[::1]", &[], false).permits("http://[::1]:3000/"));
        assert!(!hosts("localhost", &[], false).permits("http://a.localhost/"));
        assert!(!hosts("10.0.0.1", &[], false).permits("http://10.0.0.1/"));
        assert!(hosts("10.0.0.1", &[], true).permits("http://10.0.0.1/"));
        assert!(hosts("example.com", &[], true).permits("http://example.com/"));
    }
}
