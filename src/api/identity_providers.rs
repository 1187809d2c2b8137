//! Well-known identity providers: where the login to another site may continue without further
//! permission.

use super::public_suffix::is_within;

/// An identity provider.
struct IdentityProvider {
    name: &'static str,
    /// Hosts of its pages for logging in.
    hosts: &'static [&'static str],
    /// Domains below which each customer has a host.
    customer_domains: &'static [&'static str],
}

const PROVIDERS: [IdentityProvider; 19] = [
    IdentityProvider::with_hosts("google", &["accounts.google.com"]),
    IdentityProvider::with_hosts(
        "microsoft",
        &[
            "login.live.com",
            "login.microsoft.com",
            "login.microsoftonline.com",
            "login.microsoftonline.us",
            "login.windows.net",
        ],
    ),
    IdentityProvider::with_hosts("apple", &["account.apple.com", "appleid.apple.com"]),
    IdentityProvider::with_hosts("github", &["github.com"]),
    IdentityProvider::with_hosts("gitlab", &["gitlab.com"]),
    IdentityProvider::with_hosts("facebook", &["m.facebook.com", "www.facebook.com"]),
    IdentityProvider::with_hosts("linkedin", &["www.linkedin.com"]),
    IdentityProvider::with_hosts("amazon", &["www.amazon.com"]),
    IdentityProvider::with_hosts("x", &["api.x.com", "twitter.com", "x.com"]),
    IdentityProvider::with_hosts("discord", &["discord.com"]),
    IdentityProvider::with_hosts("slack", &["slack.com"]),
    IdentityProvider::with_hosts("yahoo", &["login.yahoo.com"]),
    IdentityProvider::with_hosts("jumpcloud", &["console.jumpcloud.com", "sso.jumpcloud.com"]),
    IdentityProvider::with_customers("okta", &["okta-emea.com", "okta.com", "oktapreview.com"]),
    IdentityProvider::with_customers("auth0", &["auth0.com"]),
    IdentityProvider::with_customers("onelogin", &["onelogin.com"]),
    IdentityProvider::with_customers(
        "ping",
        &[
            "pingidentity.com",
            "pingone.asia",
            "pingone.ca",
            "pingone.com",
            "pingone.eu",
        ],
    ),
    IdentityProvider::with_customers("duo", &["duosecurity.com"]),
    IdentityProvider::with_customers("cognito", &["amazoncognito.com"]),
];

impl IdentityProvider {
    const fn with_hosts(name: &'static str, hosts: &'static [&'static str]) -> IdentityProvider {
        IdentityProvider {
            name,
            hosts,
            customer_domains: &[],
        }
    }

    const fn with_customers(
        name: &'static str,
        customer_domains: &'static [&'static str],
    ) -> IdentityProvider {
        IdentityProvider {
            name,
            hosts: &[],
            customer_domains,
        }
    }

    fn has(&self, host: &str) -> bool {
        let mut domains = self.customer_domains.iter();
        self.hosts.contains(&host) || domains.any(|domain| is_within(host, domain))
    }
}

/// Returns the name of the identity provider with a host, such as `google`. `host` is in lower
/// case, as in a parsed URL.
#[must_use]
pub fn identity_provider_of(host: &str) -> Option<&'static str> {
    let found = PROVIDERS.iter().find(|provider| provider.has(host));
    found.map(|provider| provider.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_is_found_by_its_hosts_only() {
        for (host, expected) in [
            ("accounts.google.com", Some("google")),
            ("login.microsoftonline.com", Some("microsoft")),
            ("github.com", Some("github")),
            ("acme.okta.com", Some("okta")),
            ("acme.eu.auth0.com", Some("auth0")),
            ("google.com", None),
            ("drive.google.com", None),
            ("accounts.google.com.evil.test", None),
            ("evil.github.com", None),
            ("notokta.com", None),
            ("localhost", None),
            ("", None),
        ] {
            assert_eq!(identity_provider_of(host), expected, "{host}");
        }
    }
}
