//! Decides which paths below `/browsers/{id}` are forwarded to the agent.
//!
//! The agent also has routes that are not for a browser's clients, such as its metrics, its archive
//! and the restart of Chromium. A path is forwarded only if its first segment is byte for byte the
//! name of a group of session routes, and no segment could be interpreted as a way out of it.

/// The first segments of session routes.
const GROUPS: [&str; 12] = [
    "automation",
    "cdp",
    "computer",
    "devtools",
    "extensions",
    "fs",
    "json",
    "live",
    "logs",
    "playwright",
    "process",
    "telemetry",
];

/// The path of a session route at the agent, with its leading slash, encoded as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionPath<'a>(&'a str);

/// Why a path is not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
    /// The first segment is not a group of session routes.
    Unknown,
    /// The path could be interpreted in more than one way.
    Ambiguous,
}

impl<'a> SessionPath<'a> {
    /// Parses the part of a request's path after `/browsers/{id}`.
    pub fn of_request(path: &'a str) -> Result<Self, PathError> {
        let below = path.strip_prefix("/browsers/").ok_or(PathError::Unknown)?;
        let slash = below.find('/').ok_or(PathError::Unknown)?;
        Self::parse(&below[slash..])
    }

    fn parse(path: &'a str) -> Result<Self, PathError> {
        // A trailing slash is harmless. Some clients send it with `/json/version`.
        let inner = path.strip_suffix('/').unwrap_or(path);
        let mut segments = inner
            .strip_prefix('/')
            .ok_or(PathError::Unknown)?
            .split('/');
        if segments.clone().any(is_ambiguous) {
            return Err(PathError::Ambiguous);
        }
        let group = segments.next().unwrap_or_default();
        if GROUPS.contains(&group) {
            Ok(Self(path))
        } else {
            Err(PathError::Unknown)
        }
    }

    /// Returns a path that control requests itself, without checks.
    pub fn internal(path: &'a str) -> Self {
        Self(path)
    }

    pub fn as_str(&self) -> &'a str {
        self.0
    }

    /// Removes a trailing slash.
    #[must_use]
    pub fn trimmed(self) -> Self {
        Self(self.0.strip_suffix('/').unwrap_or(self.0))
    }
}

fn is_ambiguous(segment: &str) -> bool {
    let decoded: Vec<u8> = percent_encoding::percent_decode_str(segment).collect();
    matches!(decoded.as_slice(), b"" | b"." | b"..")
        || decoded
            .iter()
            .any(|byte| matches!(byte, b'/' | b'\\') || byte.is_ascii_control())
}

/// Removes the session token from a query, because only control may see it. Returns `None` if
/// nothing else remains.
pub(crate) fn without_token(query: &str) -> Option<String> {
    let remaining: Vec<&str> = query.split('&').filter(|pair| !is_token(pair)).collect();
    (!remaining.is_empty()).then(|| remaining.join("&"))
}

fn is_token(pair: &str) -> bool {
    let mut parsed = url::form_urlencoded::parse(pair.as_bytes());
    parsed.next().is_some_and(|(name, _)| name == "jwt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_route_is_forwarded_unchanged() {
        for path in [
            "/fs/read_file",
            "/cdp",
            "/json/version/",
            "/devtools/page/0123ABCD",
            "/process/7f2c1c54-7d83-4d0c-8a0e-6ae1d8f3f0a1/stdout/stream",
            "/extensions/a%20b%25",
        ] {
            let whole = format!("/browsers/any-name{path}");
            assert_eq!(
                SessionPath::of_request(&whole),
                Ok(SessionPath(path)),
                "{path}"
            );
        }
    }

    #[test]
    fn internal_route_of_the_agent_is_unknown() {
        for path in [
            "/metrics",
            "/openapi.json",
            "/docs",
            "/user_data",
            "/chromium",
            "/chromium/restart",
            "/credentials/fill",
            "/login/inspect",
            "/login/act",
            "/login/open",
            "/health",
            "/display",
            "/replays",
            "/replays/rep_01jd0000000000000000000000/",
            "/session",
            "/session/end",
            "/sessions",
            "/sessions/1/replays",
            "/sessions/1/replays/rep_01jd0000000000000000000000",
            "",
            "/",
            "/fsx/read",
            "/FS/read_file",
            "/f%73/read_file",
            "/Cdp",
        ] {
            let whole = format!("/browsers/brw_x{path}");
            assert_eq!(
                SessionPath::of_request(&whole),
                Err(PathError::Unknown),
                "{path}"
            );
        }
    }

    #[test]
    fn ambiguous_path_is_rejected() {
        for path in [
            "/fs/../metrics",
            "/fs/%2e%2e/metrics",
            "/fs/.%2E/metrics",
            "/fs/./read_file",
            "/fs//read_file",
            "//metrics",
            "/fs/..%2fmetrics",
            "/fs/%2Fmetrics",
            "/fs/..\\metrics",
            "/fs/..%5cmetrics",
            "/fs/read%00file",
            "/fs/read%0d%0aX",
            "/../../metrics",
            "/fs/..",
            "/fs/../",
        ] {
            let whole = format!("/browsers/brw_x{path}");
            assert_eq!(
                SessionPath::of_request(&whole),
                Err(PathError::Ambiguous),
                "{path}"
            );
        }
    }

    #[test]
    fn only_the_token_is_removed_from_the_query() {
        assert_eq!(
            without_token("a=b&jwt=x.y.z&c=%20d"),
            Some("a=b&c=%20d".to_owned())
        );
        assert_eq!(without_token("%6Awt=x"), None);
        assert_eq!(without_token("jwt=1&jwt=2"), None);
        assert_eq!(
            without_token("jwts=1&xjwt=2&path=/a&&"),
            Some("jwts=1&xjwt=2&path=/a&&".to_owned())
        );
    }
}
