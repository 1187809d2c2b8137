//! Which paths below `/browsers/{id}` lead to the agent.
//!
//! The agent has routes that are not for a browser's users (its figures, its archive, the restart of Chromium). So a path is passed on
//! only where it begins with the name of a group of session routes, letter for letter, and holds nothing that the
//! agent or anything on the way might read as a way out of that group.

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

/// The path of a session route as the agent knows it, with its leading slash; still encoded as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionPath<'a>(&'a str);

/// Why a path is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
    /// No session route begins like that.
    Unknown,
    /// It could be read in more than one way.
    Ambiguous,
}

impl<'a> SessionPath<'a> {
    /// The part of a request's path behind `/browsers/{id}`.
    pub fn of_request(path: &'a str) -> Result<Self, PathError> {
        let below = path.strip_prefix("/browsers/").ok_or(PathError::Unknown)?;
        let slash = below.find('/').ok_or(PathError::Unknown)?;
        Self::parse(&below[slash..])
    }

    fn parse(path: &'a str) -> Result<Self, PathError> {
        // A closing slash is harmless: some clients send it with `/json/version`.
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

    /// A path of the agent that control itself asks for, not its client.
    pub fn own(path: &'a str) -> Self {
        Self(path)
    }

    pub fn as_str(&self) -> &'a str {
        self.0
    }

    /// The path without a closing slash.
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

/// A query without the session token, which is for control alone; `None` where nothing else was in it.
pub fn without_token(query: &str) -> Option<String> {
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_token(pair)).collect();
    (!kept.is_empty()).then(|| kept.join("&"))
}

fn is_token(pair: &str) -> bool {
    let mut read = url::form_urlencoded::parse(pair.as_bytes());
    read.next().is_some_and(|(name, _)| name == "jwt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_routes_pass_as_they_are() {
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
    fn the_agents_own_routes_are_out_of_reach() {
        for path in [
            "/metrics",
            "/openapi.json",
            "/docs",
            "/user_data",
            "/chromium",
            "/chromium/restart",
            "/health",
            "/display",
            "/replays",
            "/replays/rep_01jd0000000000000000000000/",
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
    fn a_path_with_two_readings_is_refused() {
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
    fn the_token_alone_is_taken_from_the_query() {
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
