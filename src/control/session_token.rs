//! Session tokens: JSON Web Tokens in a browser's own URLs, each valid for a part of that browser.
//!
//! A token names the API key that it was issued for by the key's public part, which no other key
//! has. It ends when that key is deleted or expired.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use jsonwebtoken::{
    Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode, get_current_timestamp,
};
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use serde::{Deserialize, Serialize};

use super::{
    secret_token::random_hex,
    state_dir::{StateDir, StateDirError},
};
use crate::api::ids::{BrowserId, ProjectId, ReplayId};

/// Holds the secret in the state directory, so that tokens of an earlier run stay valid.
const SECRET_FILE: &str = "session-secret";
/// The lifetime of a token, far longer than the longest idle timeout, unless its key expires
/// before. A token for a browser becomes useless with the end of the browser in any case.
const LIFETIME: Duration = Duration::from_hours(30 * 24);
/// The length of the secret in bytes, that of the signature's hash. It is written as hexadecimal
/// digits.
pub const SECRET_BYTES: usize = 32;
/// The most bytes of a token. Longer ones are rejected without parsing.
const MAX_LENGTH: usize = 1024;

/// The audiences, which distinguish the scopes from each other and from other tokens signed with
/// the same secret.
const SESSION: &str = "berth:session";
const LIVE: &str = "berth:live";
const LIVE_VIEW: &str = "berth:live-view";
const REPLAY: &str = "berth:replay";

/// The error for a token that is malformed, modified or expired. It does not tell which, so that an
/// attacker learns nothing.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the session token is not valid")]
pub struct InvalidToken;

/// The part of a browser that a token is valid for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All its session routes.
    Session,
    /// Its live view with mouse and keyboard.
    Live,
    /// Its live view without input.
    LiveView,
    /// The file and the player page of one replay.
    Replay(ReplayId),
}

/// The credential with which a token ends: an API key, or another token of that key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// The key's public part.
    pub key: String,
    /// The expiry of the key, or that of the other token, which is no later.
    pub expires_at: Option<DateTime<Utc>>,
}

/// The content of a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub browser: BrowserId,
    pub project: ProjectId,
    pub scope: Scope,
    /// The public part of the key that the token was issued for. The caller must verify the key.
    pub key: String,
    pub expires_at: DateTime<Utc>,
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
    /// The public part of the API key. Tokens of earlier versions, which have none, are invalid.
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replay: Option<String>,
}

/// Issues and verifies session tokens with one secret. Clones share it.
#[derive(Clone)]
pub struct SessionTokens {
    keys: Arc<Keys>,
}

struct Keys {
    signing: EncodingKey,
    verifying: DecodingKey,
    validation: Validation,
}

/// Returns the secret that was configured, or that of the state directory, which is created at
/// first use.
pub fn secret(
    configured: Option<&SecretString>,
    state_dir: &StateDir,
) -> Result<SecretSlice<u8>, StateDirError> {
    let secret = match configured {
        Some(secret) => secret.clone(),
        None => match state_dir.read_hex_secret(SECRET_FILE, SECRET_BYTES)? {
            Some(secret) => secret,
            None => {
                let fresh = random_hex::<SECRET_BYTES>();
                state_dir.write_secret(SECRET_FILE, &fresh)?;
                fresh.into()
            }
        },
    };
    Ok(secret.expose_secret().as_bytes().to_vec().into())
}

impl SessionTokens {
    /// Returns the service for a secret of at least 32 bytes, the length of the signature's hash.
    pub fn new(secret: &SecretSlice<u8>) -> Self {
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_audience(&[SESSION, LIVE, LIVE_VIEW, REPLAY]);
        validation.set_required_spec_claims(&["aud", "exp", "sub"]);
        validation.leeway = 0;
        let keys = Keys {
            signing: EncodingKey::from_secret(secret.expose_secret()),
            verifying: DecodingKey::from_secret(secret.expose_secret()),
            validation,
        };
        Self {
            keys: Arc::new(keys),
        }
    }

    /// Issues a token for a part of one browser. It ends with the key of `issuer`.
    pub fn issue(
        &self,
        issuer: &Issuer,
        browser: &BrowserId,
        project: &ProjectId,
        scope: &Scope,
    ) -> String {
        self.issue_at(get_current_timestamp(), issuer, browser, project, scope)
    }

    #[expect(
        clippy::expect_used,
        reason = "encoding fails only for a key of another algorithm or unserializable claims"
    )]
    fn issue_at(
        &self,
        now: u64,
        issuer: &Issuer,
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
        let longest = now + LIFETIME.as_secs();
        let key_expiry = issuer.expires_at.map(|time| time.timestamp());
        let key_expiry = key_expiry.map(|time| u64::try_from(time).unwrap_or_default());
        let claims = Claims {
            aud: audience.to_owned(),
            exp: key_expiry.map_or(longest, |time| time.min(longest)),
            iat: now,
            sub: browser.to_string(),
            project: project.to_string(),
            key: issuer.key.clone(),
            replay,
        };
        encode(&Header::new(Algorithm::HS256), &claims, &self.keys.signing)
            .expect("claims are serializable and the key is for HS256")
    }

    /// Verifies a token and returns its content.
    pub fn verify(&self, token: &str) -> Result<Grant, InvalidToken> {
        if token.len() > MAX_LENGTH {
            return Err(InvalidToken);
        }
        let claims = decode::<Claims>(token, &self.keys.verifying, &self.keys.validation)
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
            key: claims.key,
            expires_at: i64::try_from(claims.exp)
                .ok()
                .and_then(|seconds| DateTime::from_timestamp(seconds, 0))
                .ok_or(InvalidToken)?,
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
    use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
    use serde_json::json;

    use super::*;

    fn tokens(byte: u8) -> SessionTokens {
        SessionTokens::new(&SecretSlice::from(vec![byte; 32]))
    }

    fn issuer() -> Issuer {
        Issuer {
            key: "0123456789ab".to_owned(),
            expires_at: None,
        }
    }

    /// Returns the claims of a valid token.
    fn claims() -> serde_json::Value {
        json!({
            "aud": SESSION,
            "exp": get_current_timestamp() + 60,
            "iat": 0,
            "sub": BrowserId::generate().to_string(),
            "project": ProjectId::generate().to_string(),
            "key": issuer().key,
        })
    }

    fn part(value: &serde_json::Value) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(value.to_string())
    }

    #[test]
    fn verified_token_has_its_browser_and_scope() {
        for scope in [
            Scope::Session,
            Scope::Live,
            Scope::LiveView,
            Scope::Replay(ReplayId::generate()),
        ] {
            let (browser, project) = (BrowserId::generate(), ProjectId::generate());
            let now = get_current_timestamp();
            let token = tokens(1).issue_at(now, &issuer(), &browser, &project, &scope);
            assert!(token.len() < MAX_LENGTH);
            let expiry = (now + LIFETIME.as_secs()).cast_signed();
            let grant = Grant {
                browser,
                project,
                scope,
                key: issuer().key,
                expires_at: DateTime::from_timestamp(expiry, 0).unwrap(),
            };
            assert_eq!(tokens(1).verify(&token), Ok(grant));
        }
    }

    #[test]
    fn token_of_another_secret_or_modified_token_is_rejected() {
        let fresh = || {
            let (browser, project) = (BrowserId::generate(), ProjectId::generate());
            tokens(1).issue(&issuer(), &browser, &project, &Scope::Session)
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
    fn expired_token_is_rejected() {
        let long_ago = get_current_timestamp() - LIFETIME.as_secs() - 1;
        let (browser, project) = (BrowserId::generate(), ProjectId::generate());
        let token = tokens(1).issue_at(long_ago, &issuer(), &browser, &project, &Scope::Session);
        assert_eq!(tokens(1).verify(&token), Err(InvalidToken));
    }

    #[test]
    fn token_expires_no_later_than_its_key() {
        let (browser, project) = (BrowserId::generate(), ProjectId::generate());
        for (seconds, is_valid) in [(-1, false), (3600, true)] {
            let issuer = Issuer {
                expires_at: Some(Utc::now() + chrono::TimeDelta::seconds(seconds)),
                ..issuer()
            };
            let token = tokens(1).issue(&issuer, &browser, &project, &Scope::Session);
            assert_eq!(tokens(1).verify(&token).is_ok(), is_valid, "{seconds}");
            let payload = token.split('.').nth(1).unwrap();
            let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap();
            let claims: Claims = serde_json::from_slice(&payload).unwrap();
            let expected = issuer.expires_at.unwrap().timestamp().cast_unsigned();
            assert_eq!(claims.exp, expected);
        }
    }

    #[test]
    fn token_without_a_key_is_rejected() {
        let mut claims = claims();
        let key = EncodingKey::from_secret(&[1; 32]);
        let sign = |claims: &_| encode(&Header::new(Algorithm::HS256), claims, &key).unwrap();
        assert!(tokens(1).verify(&sign(&claims)).is_ok());
        claims.as_object_mut().unwrap().remove("key");
        assert_eq!(tokens(1).verify(&sign(&claims)), Err(InvalidToken));
    }

    #[test]
    fn token_with_another_algorithm_is_rejected() {
        let claims = claims();
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
        let valid = encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap();
        assert!(tokens(1).verify(&valid).is_ok());
    }

    #[test]
    fn token_for_another_audience_is_rejected() {
        let signed = |audience: &str, replay: Option<&str>| {
            let mut claims = claims();
            claims["aud"] = audience.into();
            claims["replay"] = replay.into();
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
    fn malformed_token_is_rejected() {
        let long = "a".repeat(MAX_LENGTH + 1);
        for malformed in [
            "",
            ".",
            "..",
            "a.b.c",
            "eyJhbGciOiJIUzI1NiJ9.e30.",
            long.as_str(),
        ] {
            assert_eq!(
                tokens(1).verify(malformed),
                Err(InvalidToken),
                "{malformed:.40}"
            );
        }
    }
}
