//! The public suffix list, compiled in: which names are registered by different parties.

use std::net::IpAddr;

/// Returns the registrable domain of a host: its public suffix and one more label, such as
/// `example.co.uk` for `login.example.co.uk`. Addresses, public suffixes and single labels such as
/// `localhost` have none. `host` is in lower case, as in a parsed URL.
#[must_use]
pub fn registrable_domain(host: &str) -> Option<&str> {
    // The list has no rules for addresses: the last two numbers would be a domain.
    if host.starts_with('[') || host.trim_end_matches('.').parse::<IpAddr>().is_ok() {
        return None;
    }
    psl::domain_str(host)
}

/// Returns whether a host is `domain` or a name below it.
#[must_use]
pub fn is_within(host: &str, domain: &str) -> bool {
    let rest = host.strip_suffix(domain);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Returns whether a host has the registrable domain of `domain`. One that has none, such as
/// `localhost`, stands for itself.
#[must_use]
pub fn is_same_site(host: &str, domain: &str) -> bool {
    match registrable_domain(domain) {
        Some(registrable) => is_within(host, registrable),
        None => host == domain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_is_the_registrable_domain_and_names_below_it() {
        for (host, domain) in [
            ("example.com", "example.com"),
            ("login.example.com", "example.com"),
            ("example.com", "www.example.com"),
            ("a.example.co.uk", "b.example.co.uk"),
            ("localhost", "localhost"),
        ] {
            assert!(is_same_site(host, domain), "{host} {domain}");
        }
        for (host, domain) in [
            ("notexample.com", "example.com"),
            ("example.com.evil.test", "example.com"),
            ("example.com.", "example.com"),
            ("other.co.uk", "example.co.uk"),
            ("evil.github.io", "user.github.io"),
            ("github.io", "user.github.io"),
            ("a.localhost", "localhost"),
            ("", "example.com"),
        ] {
            assert!(!is_same_site(host, domain), "{host} {domain}");
        }
    }

    #[test]
    fn registrable_domain_has_one_label_more_than_its_suffix() {
        for (host, expected) in [
            ("example.com", Some("example.com")),
            ("login.example.co.uk", Some("example.co.uk")),
            ("login.example.co.uk.", Some("example.co.uk")),
            // A suffix of the list's private section: each user is another party.
            ("user.github.io", Some("user.github.io")),
            ("github.io", None),
            ("co.uk", None),
            ("vault.internal", Some("vault.internal")),
            ("localhost", None),
            ("127.0.0.1", None),
            ("127.0.0.1.", None),
            ("[::1]", None),
            ("::1", None),
            ("", None),
        ] {
            assert_eq!(registrable_domain(host), expected, "{host}");
        }
    }
}
