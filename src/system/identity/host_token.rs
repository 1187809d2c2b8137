//! Tokens with which a host proves that it has its private key: JSON Web Tokens, signed with it.
//!
//! A token names the public key itself, so that it is verified without a look-up. What the key
//! gives access to is for the caller to decide.

use std::{sync::Arc, time::Duration};

use jsonwebtoken::{
    Algorithm, DecodingKey, Header, Validation, dangerous::insecure_decode_claims, decode, encode,
    get_current_timestamp,
};
use serde::{Deserialize, Serialize};

use super::{HostIdentityError, HostKey, HostPublicKey};

/// The lifetime of a token. One is made for each request.
const LIFETIME: Duration = Duration::from_secs(30);
/// The longest lifetime that is accepted.
const MAX_LIFETIME: Duration = Duration::from_secs(60);
/// The difference between the clocks of a host and of control that is accepted.
pub const MAX_CLOCK_SKEW: Duration = Duration::from_secs(30);
/// The most bytes of a token. Longer ones are rejected without parsing.
const MAX_LENGTH: usize = 1024;

/// The request that a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenAudience {
    /// The registration of a host that is known already.
    Registration,
    Heartbeat,
}

/// The error for a token that is malformed, modified, expired or for another request. It does not
/// name the reason, so that an attacker learns nothing.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the token of the host is not valid")]
pub struct InvalidHostToken;

#[derive(Serialize, Deserialize)]
struct Claims {
    aud: String,
    exp: u64,
    iat: u64,
    /// The public key.
    sub: String,
}

impl TokenAudience {
    fn as_str(self) -> &'static str {
        match self {
            TokenAudience::Registration => "berth:fleet:registration",
            TokenAudience::Heartbeat => "berth:fleet:heartbeat",
        }
    }
}

impl HostKey {
    /// Returns a token for one request.
    pub fn token(&self, audience: TokenAudience) -> Result<String, HostIdentityError> {
        self.token_at(get_current_timestamp(), LIFETIME, audience)
    }

    fn token_at(
        &self,
        now: u64,
        lifetime: Duration,
        audience: TokenAudience,
    ) -> Result<String, HostIdentityError> {
        let claims = Claims {
            aud: audience.as_str().to_owned(),
            exp: now + lifetime.as_secs(),
            iat: now,
            sub: self.public().to_string(),
        };
        let token = encode(&Header::new(Algorithm::ES256), &claims, &self.signing_key());
        token.map_err(|_| HostIdentityError::InvalidPrivateKey)
    }
}

/// Verifies the tokens of hosts.
#[derive(Clone)]
pub struct HostTokens {
    validation: Arc<Validation>,
}

impl Default for HostTokens {
    fn default() -> Self {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_required_spec_claims(&["aud", "exp", "sub"]);
        validation.leeway = MAX_CLOCK_SKEW.as_secs();
        HostTokens {
            validation: Arc::new(validation),
        }
    }
}

impl HostTokens {
    /// Returns the public key whose owner has made the token for a request like this one, within
    /// the last minute.
    pub fn verify(
        &self,
        token: &str,
        audience: TokenAudience,
    ) -> Result<HostPublicKey, InvalidHostToken> {
        self.verify_at(get_current_timestamp(), token, audience)
    }

    fn verify_at(
        &self,
        now: u64,
        token: &str,
        audience: TokenAudience,
    ) -> Result<HostPublicKey, InvalidHostToken> {
        if token.len() > MAX_LENGTH {
            return Err(InvalidHostToken);
        }
        let claims: Claims = insecure_decode_claims(token).map_err(|_| InvalidHostToken)?;
        let key: HostPublicKey = claims.sub.parse().map_err(|_| InvalidHostToken)?;
        let mut validation = Validation::clone(&self.validation);
        validation.set_audience(&[audience.as_str()]);
        let verifying = DecodingKey::from_ec_der(key.as_point());
        decode::<Claims>(token, &verifying, &validation).map_err(|_| InvalidHostToken)?;
        let latest = now + (MAX_LIFETIME + MAX_CLOCK_SKEW).as_secs();
        match claims.exp <= latest {
            true => Ok(key),
            false => Err(InvalidHostToken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TokenAudience::{Heartbeat, Registration};

    #[test]
    fn token_proves_its_key_for_its_request() {
        let (key, tokens) = (HostKey::generate().unwrap(), HostTokens::default());
        let token = key.token(Heartbeat).unwrap();
        assert_eq!(tokens.verify(&token, Heartbeat).as_ref(), Ok(key.public()));
        assert_eq!(tokens.verify(&token, Registration), Err(InvalidHostToken));
        let restored = HostKey::from_pem(&key.to_pem()).unwrap();
        let token = restored.token(Registration).unwrap();
        let proven = tokens.verify(&token, Registration);
        assert_eq!(proven.as_ref(), Ok(key.public()));
    }

    #[test]
    fn token_is_valid_for_a_minute_at_most() {
        let (key, tokens) = (HostKey::generate().unwrap(), HostTokens::default());
        let now = get_current_timestamp();
        // The time of the token relative to now, its lifetime, and whether it is valid.
        for (time, lifetime, is_valid) in [
            (0, 60, true),
            (25, 60, true),
            (-40, 60, true),
            (-80, 60, true),
            (-100, 60, false),
            (0, 100, false),
            (0, 3600, false),
            (3600, 30, false),
        ] {
            let lifetime = Duration::from_secs(lifetime);
            let token = key.token_at(now.saturating_add_signed(time), lifetime, Heartbeat);
            let verified = tokens.verify_at(now, &token.unwrap(), Heartbeat);
            assert_eq!(verified.is_ok(), is_valid, "{time} {lifetime:?}");
        }
    }

    #[test]
    fn forged_token_is_rejected() {
        let (key, other) = (HostKey::generate().unwrap(), HostKey::generate().unwrap());
        let tokens = HostTokens::default();
        let token = key.token(Heartbeat).unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let foreign = other.token(Heartbeat).unwrap();
        let (_, foreign_signature) = foreign.rsplit_once('.').unwrap();
        let claims = Claims {
            aud: Heartbeat.as_str().to_owned(),
            exp: get_current_timestamp() + 30,
            iat: get_current_timestamp(),
            sub: key.public().to_string(),
        };
        // The public key as the secret of a symmetric signature.
        let secret = jsonwebtoken::EncodingKey::from_secret(key.public().as_point());
        let symmetric = encode(&Header::new(Algorithm::HS256), &claims, &secret).unwrap();
        let impersonated = encode(
            &Header::new(Algorithm::ES256),
            &claims,
            &other.signing_key(),
        );
        let unsigned = format!("eyJhbGciOiJub25lIn0.{}.", signed.split_once('.').unwrap().1);
        for forged in [
            String::new(),
            "a.b.c".to_owned(),
            "x".repeat(MAX_LENGTH + 1),
            signed.to_owned(),
            format!("{signed}.{foreign_signature}"),
            format!("{signed}.{}", signature.to_lowercase()),
            symmetric,
            impersonated.unwrap(),
            unsigned,
        ] {
            let verified = tokens.verify(&forged, Heartbeat);
            assert_eq!(verified, Err(InvalidHostToken), "{forged}");
        }
    }
}
