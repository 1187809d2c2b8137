//! Registrable domains: the part of a host name that its owner has registered, by the public suffix
//! list, such as `example.co.uk` of `www.example.co.uk`.

/// Returns the registrable domain of a host name in lower case, or `None` if it has none: a public
/// suffix, such as `co.uk`, and a name of one label, such as `localhost`.
#[must_use]
pub fn registrable_domain(host: &str) -> Option<&str> {
    psl::domain_str(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registrable_domain_is_below_a_public_suffix() {
        for (host, domain) in [
            ("example.com", Some("example.com")),
            ("a.b.example.com", Some("example.com")),
            ("www.example.co.uk", Some("example.co.uk")),
            // A suffix of the list's private part.
            ("user.github.io", Some("user.github.io")),
            ("a.user.github.io", Some("user.github.io")),
            ("github.io", None),
            ("co.uk", None),
            ("com", None),
            ("localhost", None),
            ("xn--bcher-kva.example", Some("xn--bcher-kva.example")),
        ] {
            assert_eq!(registrable_domain(host), domain, "{host}");
        }
    }
}
