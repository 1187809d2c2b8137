//! The token in a browser's `cdp_ws_url`: it opens that browser's session routes and nothing else.

use std::time::Duration;

use jsonwebtoken::{
    Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode, get_current_timestamp,
};
use secrecy::{ExposeSecret, SecretSlice};
use serde::{Deserialize, Serialize};

use crate::api::ids::{BrowserId, ProjectId};

/// Sets these tokens apart from any other that the same secret may come to sign.
const AUDIENCE: &str = "berth:session";
/// Long enough for the longest idle time a browser may have, many times over. A token ends with its browser in any case.
const LIFETIME: Duration = Duration::from_hours(30 * 24);
/// No token of ours is longer; what is longer is not looked at.
const MAX_LENGTH: usize = 1024;

/// The token is not one of ours, has been changed, or has expired. It does not say which: whoever tries tokens learns nothing.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the session token is not valid")]
pub struct InvalidToken;

#[derive(Serialize, Deserialize)]
struct Claims {
    aud: String,
    exp: u64,
    iat: u64,
    /// The browser.
    sub: String,
    /// The browser's project.
    project: String,
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
        validation.set_audience(&[AUDIENCE]);
        validation.set_required_spec_claims(&["aud", "exp", "sub"]);
        validation.leeway = 0;
        Self {
            signing: EncodingKey::from_secret(secret.expose_secret()),
            verifying: DecodingKey::from_secret(secret.expose_secret()),
            validation,
        }
    }

    /// A token for the session routes of one browser.
    pub fn issue(&self, browser: &BrowserId, project: &ProjectId) -> String {
        self.issue_at(get_current_timestamp(), browser, project)
    }

    fn issue_at(&self, now: u64, browser: &BrowserId, project: &ProjectId) -> String {
        let claims = Claims {
            aud: AUDIENCE.to_owned(),
            exp: now + LIFETIME.as_secs(),
            iat: now,
            sub: browser.to_string(),
            project: project.to_string(),
        };
        encode(&Header::new(Algorithm::HS256), &claims, &self.signing)
            .expect("strings and numbers encode, and the key fits the algorithm")
    }

    /// Which browser of which project the token opens.
    pub fn verify(&self, token: &str) -> Result<(BrowserId, ProjectId), InvalidToken> {
        if token.len() > MAX_LENGTH {
            return Err(InvalidToken);
        }
        let claims = decode::<Claims>(token, &self.verifying, &self.validation)
            .map_err(|_| InvalidToken)?
            .claims;
        Ok((
            claims.sub.parse().map_err(|_| InvalidToken)?,
            claims.project.parse().map_err(|_| InvalidToken)?,
        ))
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
    fn a_token_names_its_browser_and_project() {
        let (browser, project) = (BrowserId::generate(), ProjectId::generate());
        let token = tokens(1).issue(&browser, &project);
        assert!(token.len() < MAX_LENGTH);
        assert_eq!(tokens(1).verify(&token), Ok((browser, project)));
    }

    #[test]
    fn a_token_of_another_secret_or_a_changed_one_is_refused() {
        let token = tokens(1).issue(&BrowserId::generate(), &ProjectId::generate());
        assert_eq!(tokens(2).verify(&token), Err(InvalidToken));
        let other = tokens(1).issue(&BrowserId::generate(), &ProjectId::generate());
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
        let token = tokens(1).issue_at(long_ago, &BrowserId::generate(), &ProjectId::generate());
        assert_eq!(tokens(1).verify(&token), Err(InvalidToken));
    }

    #[test]
    fn no_algorithm_but_ours_is_accepted() {
        let claims = json!({
            "aud": AUDIENCE,
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
        let claims = json!({
            "aud": "berth:handoff",
            "exp": get_current_timestamp() + 60,
            "iat": 0,
            "sub": BrowserId::generate().to_string(),
            "project": ProjectId::generate().to_string(),
        });
        let token = encode(
            &Header::new(Algorithm::HS256),
            &claims,
            &EncodingKey::from_secret(&[1; 32]),
        )
        .unwrap();
        assert_eq!(tokens(1).verify(&token), Err(InvalidToken));
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
