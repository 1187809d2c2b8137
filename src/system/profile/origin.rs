//! Origins as Chromium writes them: as identifiers in names of directories, and as storage keys.
//!
//! | form | example |
//! |---|---|
//! | identifier | `https_example.com_0`, `http_127.0.0.1_8080`, `http_[__1]_0`, `file__0` |
//! | storage key | `https://example.com/`, `https://widget.example/^0https://example.com` |
//!
//! A storage key with attributes after `^` is that of a page in a frame of another site, which has
//! a storage of its own for each such site.

use url::Url;

/// The limit on a form in bytes.
const MAX_BYTES: usize = 4096;
/// The limit on an origin in bytes: a host name has at most 253, besides the scheme and the port. A
/// longer one is none.
const MAX_ORIGIN_BYTES: usize = 300;

/// Returns the origin of an identifier.
#[must_use]
pub fn from_identifier(identifier: &str) -> Option<String> {
    if identifier == "file__0" {
        return Some("file://".to_owned());
    }
    let (scheme, rest) = identifier.split_once('_')?;
    let (host, port) = rest.rsplit_once('_')?;
    let port: u16 = port.parse().ok()?;
    // Identifiers have `_` for the colons of IPv6 addresses.
    let host = match host.starts_with('[') {
        true => host.replace('_', ":"),
        false => host.to_owned(),
    };
    match port {
        0 => from_url(&format!("{scheme}://{host}/")),
        port => from_url(&format!("{scheme}://{host}:{port}/")),
    }
}

/// Returns the origin of a storage key, followed by the site that embeds it, if one does.
#[must_use]
pub fn from_storage_key(key: &str) -> Option<String> {
    let (origin, attributes) = match key.split_once('^') {
        None => (key, None),
        Some((origin, attributes)) => (origin, Some(attributes)),
    };
    let origin = from_url(origin)?;
    Some(match attributes {
        None => origin,
        Some(attributes) => format!("{origin} (embedded in {})", embedder(attributes)),
    })
}

/// Returns the site of the page that embeds an origin. The digit of an attribute is its kind; 0 is
/// the site, and all others are of opaque sites, or of frames within frames.
fn embedder(attributes: &str) -> String {
    attributes
        .split('^')
        .find_map(|attribute| from_url(attribute.strip_prefix('0')?))
        .unwrap_or_else(|| "another site".to_owned())
}

/// Returns the origin of a URL without path, query and credentials.
fn from_url(text: &str) -> Option<String> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let url = Url::parse(text).ok()?;
    let is_origin = matches!(url.path(), "" | "/")
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    if !is_origin {
        return None;
    }
    if url.scheme() == "file" {
        return Some("file://".to_owned());
    }
    let host = url.host_str().filter(|host| !host.is_empty())?;
    let origin = match url.port() {
        None => format!("{}://{host}", url.scheme()),
        Some(port) => format!("{}://{host}:{port}", url.scheme()),
    };
    (origin.len() <= MAX_ORIGIN_BYTES).then_some(origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifier_is_origin() {
        for (identifier, origin) in [
            ("https_example.com_0", Some("https://example.com")),
            ("http_127.0.0.1_8080", Some("http://127.0.0.1:8080")),
            ("http_my_host.example_0", Some("http://my_host.example")),
            ("http_[__1]_8801", Some("http://[::1]:8801")),
            ("file__0", Some("file://")),
            (
                "chrome-extension_abcdef_0",
                Some("chrome-extension://abcdef"),
            ),
            ("https_example.com_443", Some("https://example.com")),
            ("https_example.com", None),
            ("https_example.com_x", None),
            ("https_example.com_99999", None),
            ("https__0", None),
            ("https_a/b_0", None),
            ("https_user@host_0", None),
            ("", None),
        ] {
            assert_eq!(
                from_identifier(identifier).as_deref(),
                origin,
                "{identifier}"
            );
        }
    }

    #[test]
    fn storage_key_is_origin_with_embedder() {
        let long = format!("https://{}/", "x".repeat(MAX_BYTES));
        let longest = format!("https://{}", "x".repeat(MAX_ORIGIN_BYTES - 8));
        let too_long = format!("{longest}x/");
        for (key, origin) in [
            ("https://example.com/", Some("https://example.com")),
            ("http://127.0.0.1:8802", Some("http://127.0.0.1:8802")),
            ("file:///", Some("file://")),
            (
                "http://localhost:8801/^0http://127.0.0.1",
                Some("http://localhost:8801 (embedded in http://127.0.0.1)"),
            ),
            (
                "https://a.example/^31",
                Some("https://a.example (embedded in another site)"),
            ),
            (
                "https://a.example/^4123^5456",
                Some("https://a.example (embedded in another site)"),
            ),
            ("https://example.com/path", None),
            ("no url", None),
            ("", None),
            (&long, None),
            (&longest, Some(&longest)),
            (&too_long, None),
        ] {
            assert_eq!(from_storage_key(key).as_deref(), origin, "{key}");
        }
    }
}
