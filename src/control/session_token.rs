//! The tokens in a browser's own URLs: each opens a part of that browser and nothing else.

use std::time::Duration;

use jsonwebtoken::{
    Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode, get_current_timestamp,
};
use secrecy::{ExposeSecret, SecretSlice};
use serde::{Deserialize, Serialize};

use crate::api::ids::{BrowserId, ProjectId, ReplayId};

/// Long enough for the longest idle time a browser may have, many times over. What opens a browser ends with it in any case.
const LIFETIME: Duration = Duration::from_hours(30 * 24);
/// No token of ours is longer; what is longer is not looked at.
const MAX_LENGTH: usize = 1024;

/// Audiences set the kinds apart, and from any other token that the same secret may come to sign.
const SESSION: &str = "berth:session";
const LIVE: &str = "berth:live";
const LIVE_VIEW: &str = "berth:live-view";
const REPLAY: &str = "berth:replay";

/// The token is not one of ours, has been changed, or has expired. It does not say which: whoever tries tokens learns nothing.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the session token is not valid")]
pub struct InvalidToken;

/// What a token opens of its browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All its session routes.
    Session,
    /// Its live view, with mouse and keyboard.
    Live,
    /// Its live view, to look on.
    LiveView,
    /// One replay: its file, and the page that plays it.
    Replay(ReplayId),
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub browser: BrowserId,
    pub project: ProjectId,
    pub scope: Scope,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    aud: String,
    exp: u64,
    iat: u64,
    /// The browser.
    sub: String,
    /// The browser's project.
    project: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replay: Option<String>,
}

/// Issues and verifies session tokens with one secret.
pub struct SessionTokens {
    signing: EncodingKey,
    verifying: DecodingKey,
    validation: Validation,
}

impl SessionTokens {
    /// The secret is at least as long as the signature's hash (32 bytes).
    pub fn new(secret: &SecretSlice<u8>) -> Self {
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_audience(&[SESSION, LIVE, LIVE_VIEW, REPLAY]);
        validation.set_required_spec_claims(&["aud", "exp", "sub"]);
        validation.leeway = 0;
        Self {
            signing: EncodingKey::from_secret(secret.expose_secret()),
            verifying: DecodingKey::from_secret(secret.expose_secret()),
            validation,
        }
    }

    /// A token for a part of one browser.
    pub fn issue(&self, browser: &BrowserId, project: &ProjectId, scope: &Scope) -> String {
        self.issue_at(get_current_timestamp(), browser, project, scope)
    }

    fn issue_at(
        &self,
        now: u64,
        browser: &BrowserId,
        project: &ProjectId,
        scope: &Scope,
    ) -> String {
        let (audience, replay) = match scope {
            Scope::Session => (SESSION, None),
            Scope::Live => (LIVE, None),
            Scope::LiveView => (LIVE_VIEW, None),
            Scope::Replay(id) => (REPLAY, Some(id.to_string())),
        };
        let claims = Claims {
            aud: audience.to_owned(),
            exp: now + LIFETIME.as_secs(),
            iat: now,
            sub: browser.to_string(),
            project: project.to_string(),
            replay,
        };
        encode(&Header::new(Algorithm::HS256), &claims, &self.signing)
            .expect("strings and numbers encode, and the key fits the algorithm")
    }

    /// What the token opens, and of which browser.
    pub fn verify(&self, token: &str) -> Result<Grant, InvalidToken> {
        if token.len() > MAX_LENGTH {
            return Err(InvalidToken);
        }
        let claims = decode::<Claims>(token, &self.verifying, &self.validation)
            .map_err(|_| InvalidToken)?
            .claims;
        let scope = match (claims.aud.as_str(), claims.replay) {
            (SESSION, None) => Scope::Session,
            (LIVE, None) => Scope::Live,
            (LIVE_VIEW, None) => Scope::LiveView,
            (REPLAY, Some(id)) => Scope::Replay(id.parse().map_err(|_| InvalidToken)?),
            _ => return Err(InvalidToken),
        };
        Ok(Grant {
            browser: claims.sub.parse().map_err(|_| InvalidToken)?,
            project: claims.project.parse().map_err(|_| InvalidToken)?,
            scope,
        })
    }
}

impl std::fmt::Debug for SessionTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionTokens")
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    use serde_json::json;

    use super::*;

    fn tokens(byte: u8) -> SessionTokens {
        SessionTokens::new(&SecretSlice::from(vec![byte; 32]))
    }

    fn part(value: &serde_json::Value) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(value.to_string())
    }

    #[test]
    fn a_token_names_its_browser_and_what_it_opens_of_it() {
        for scope in [
            Scope::Session,
            Scope::Live,
            Scope::LiveView,
            Scope::Replay(ReplayId::generate()),
        ] {
            let (browser, project) = (BrowserId::generate(), ProjectId::generate());
            let token = tokens(1).issue(&browser, &project, &scope);
            assert!(token.len() < MAX_LENGTH);
            let grant = Grant {
                browser,
                project,
                scope,
            };
            assert_eq!(tokens(1).verify(&token), Ok(grant));
        }
    }

    #[test]
    fn a_token_of_another_secret_or_a_changed_one_is_refused() {
        let fresh = || {
            let (browser, project) = (BrowserId::generate(), ProjectId::generate());
            tokens(1).issue(&browser, &project, &Scope::Session)
        };
        let token = fresh();
        assert_eq!(tokens(2).verify(&token), Err(InvalidToken));
        let other = fresh();
        let (header, rest) = token.split_once('.').unwrap();
        let (_, signature) = rest.split_once('.').unwrap();
        let payload = other.split('.').nth(1).unwrap();
        assert_eq!(
            tokens(1).verify(&format!("{header}.{payload}.{signature}")),
            Err(InvalidToken)
        );
    }

    #[test]
    fn an_expired_token_is_refused() {
        let long_ago = get_current_timestamp() - LIFETIME.as_secs() - 1;
        let (browser, project) = (BrowserId::generate(), ProjectId::generate());
        let token = tokens(1).issue_at(long_ago, &browser, &project, &Scope::Session);
        assert_eq!(tokens(1).verify(&token), Err(InvalidToken));
    }

    #[test]
    fn no_algorithm_but_ours_is_accepted() {
        let claims = json!({
            "aud": SESSION,
            "exp": get_current_timestamp() + 60,
            "iat": 0,
            "sub": BrowserId::generate().to_string(),
            "project": ProjectId::generate().to_string(),
        });
        let unsigned = format!(
            "{}.{}.",
            part(&json!({"alg": "none", "typ": "JWT"})),
            part(&claims)
        );
        assert_eq!(tokens(1).verify(&unsigned), Err(InvalidToken));
        let key = EncodingKey::from_secret(&[1; 32]);
        for algorithm in [Algorithm::HS384, Algorithm::HS512] {
            let other = encode(&Header::new(algorithm), &claims, &key).unwrap();
            assert_eq!(tokens(1).verify(&other), Err(InvalidToken), "{algorithm:?}");
        }
        let ours = encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap();
        assert!(tokens(1).verify(&ours).is_ok());
    }

    #[test]
    fn a_token_for_another_purpose_is_refused() {
        let signed = |audience: &str, replay: Option<&str>| {
            let claims = json!({
                "aud": audience,
                "exp": get_current_timestamp() + 60,
                "iat": 0,
                "sub": BrowserId::generate().to_string(),
                "project": ProjectId::generate().to_string(),
                "replay": replay,
            });
            let key = EncodingKey::from_secret(&[1; 32]);
            encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
        };
        let replay = ReplayId::generate();
        assert!(
            tokens(1)
                .verify(&signed(REPLAY, Some(replay.as_str())))
                .is_ok()
        );
        for (audience, replay) in [
            ("berth:handoff", None),
            (REPLAY, None),
            (REPLAY, Some("brw_1")),
            (SESSION, Some(replay.as_str())),
            (LIVE, Some(replay.as_str())),
        ] {
            let token = signed(audience, replay);
            assert_eq!(tokens(1).verify(&token), Err(InvalidToken), "{audience}");
        }
    }

    #[test]
    fn garbage_is_refused() {
        let long = "a".repeat(MAX_LENGTH + 1);
        for garbage in [
            "",
            ".",
            "..",
            "a.b.c",
            "eyJhbGciOiJIUzI1NiJ9.e30.",
            long.as_str(),
        ] {
            assert_eq!(
                tokens(1).verify(garbage),
                Err(InvalidToken),
                "{garbage:.40}"
            );
        }
    }
}
