//! Tests of tokens of login flows.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::{DecodingKey, EncodingKey, jwk::JwkSet};
use secrecy::{SecretSlice, SecretString};
use serde_json::{Value, json};

use super::{signing_key::PUBLICATION_DELAY, *};
use crate::{
    api::ids::BrowserId,
    control::{
        secrets::key_ring::KeyRing,
        session_token::{Scope, SessionTokens},
        store::test_database::TestDatabase,
    },
};

/// A database, with what the service needs.
struct Fixture {
    database: TestDatabase,
    store: Store,
    secrets: Secrets,
}

impl Fixture {
    async fn new() -> Fixture {
        let database = TestDatabase::create();
        let store = database.open().await;
        let ring = KeyRing::parse(&SecretString::from("1".repeat(64))).unwrap();
        let secrets = Secrets::open(store.clone(), ring).await.unwrap();
        store.default_project("default", Utc::now()).await.unwrap();
        Fixture {
            database,
            store,
            secrets,
        }
    }

    /// Returns a service, as one process has it.
    fn tokens(&self) -> FlowTokens {
        FlowTokens::new(self.store.clone(), self.secrets.clone())
    }

    /// Returns the newest key and its private part.
    async fn newest(&self) -> (SigningKeyRow, EncodingKey) {
        let row = self.store.signing_keys().await.unwrap().remove(0);
        let private = signing_key::open(&self.secrets, &row).await.unwrap();
        (row, private)
    }
}

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

fn grant() -> FlowGrant {
    FlowGrant {
        connection: AuthConnectionId::generate(),
        flow: FlowId::generate(),
        project: ProjectId::generate(),
        issuer: Issuer {
            key: "0123456789ab".to_owned(),
            expires_at: None,
        },
    }
}

/// Returns the claims of a valid token.
fn claims() -> Value {
    json!({
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": AuthConnectionId::generate().to_string(),
        "flow": FlowId::generate().to_string(),
        "project": ProjectId::generate().to_string(),
        "key": "0123456789ab",
        "iat": now().timestamp(),
        "exp": now().timestamp() + 60,
    })
}

fn sign(claims: &Value, kid: &str, key: &EncodingKey) -> String {
    let header = Header {
        kid: Some(kid.to_owned()),
        ..Header::new(Algorithm::EdDSA)
    };
    encode(&header, claims, key).unwrap()
}

async fn issue(tokens: &FlowTokens, at: DateTime<Utc>) -> String {
    tokens.issue(&grant(), at).await.unwrap().0
}

async fn is_valid(tokens: &FlowTokens, token: &str, at: DateTime<Utc>) -> bool {
    match tokens.verify_at(token, at).await {
        Ok(_) => true,
        Err(FlowTokenError::Invalid) => false,
        Err(FlowTokenError::Store(error)) => panic!("{error}"),
    }
}

#[tokio::test]
async fn token_has_its_content_until_it_expires() {
    let fixture = Fixture::new().await;
    let (tokens, other_process) = (fixture.tokens(), fixture.tokens());
    let second = TimeDelta::seconds(1);
    let half = TimeDelta::milliseconds(500);
    // The expiry of the API key, and that of the token.
    for (key_expiry, expected) in [
        (None, now() + LIFETIME),
        (Some(now() + LIFETIME + second), now() + LIFETIME),
        (Some(now() + second + half), now() + second),
    ] {
        let mut grant = grant();
        grant.issuer.expires_at = key_expiry;
        let (token, expiry) = tokens.issue(&grant, now()).await.unwrap();
        assert!(token.len() < MAX_LENGTH / 2, "{}", token.len());
        assert_eq!(expiry, expected);
        grant.issuer.expires_at = Some(expiry);
        for tokens in [&tokens, &other_process] {
            let found = tokens.verify_at(&token, expiry - half).await.unwrap();
            assert_eq!(found, grant);
            assert!(!is_valid(tokens, &token, expiry).await);
        }
    }
    let mut expired = grant();
    expired.issuer.expires_at = Some(now());
    let (token, _) = tokens.issue(&expired, now()).await.unwrap();
    assert!(!is_valid(&tokens, &token, now()).await);
}

#[tokio::test]
async fn modified_token_is_rejected() {
    let fixture = Fixture::new().await;
    let tokens = fixture.tokens();
    let (token, other) = (issue(&tokens, now()).await, issue(&tokens, now()).await);
    assert!(is_valid(&tokens, &token, now()).await);
    let parts: Vec<&str> = token.split('.').collect();
    let payload = other.split('.').nth(1).unwrap();
    let mut changed = vec![format!("{}.{payload}.{}", parts[0], parts[2])];
    // Every position of the signature but the last, some bits of which mean nothing.
    let start = token.len() - parts[2].len();
    for position in start..token.len() - 1 {
        let replacement = match token.as_bytes()[position] {
            b'A' => "B",
            _ => "A",
        };
        let mut modified = token.clone();
        modified.replace_range(position..=position, replacement);
        changed.push(modified);
    }
    for text in ["", ".", "..", "...", "a.b.c", &token[..token.len() - 1]] {
        changed.push(text.to_owned());
    }
    changed.push(format!("{token}."));
    changed.push(format!("{token}.{}", parts[2]));
    changed.push(format!("{}.{}.", parts[0], parts[1]));
    for token in changed {
        assert!(!is_valid(&tokens, &token, now()).await, "{token}");
    }
}

#[tokio::test]
async fn claims_must_all_be_there_and_be_those_of_a_flow() {
    let fixture = Fixture::new().await;
    let tokens = fixture.tokens();
    issue(&tokens, now()).await;
    let (row, private) = fixture.newest().await;
    let signed = |claims: &Value| sign(claims, &row.kid, &private);
    assert!(is_valid(&tokens, &signed(&claims()), now()).await);
    for claim in claims().as_object().unwrap().keys() {
        let mut without = claims();
        without.as_object_mut().unwrap().remove(claim);
        assert!(
            !is_valid(&tokens, &signed(&without), now()).await,
            "{claim}"
        );
    }
    let past = now().timestamp() - 1;
    for (claim, value) in [
        ("iss", json!("other")),
        ("aud", json!("berth:session")),
        ("aud", json!("berth")),
        ("sub", json!(BrowserId::generate().to_string())),
        ("sub", json!("")),
        ("flow", json!("flow_1")),
        ("project", json!("default")),
        ("key", json!(null)),
        ("exp", json!(past)),
        ("exp", json!(-1)),
        ("exp", json!(i64::MAX)),
        ("exp", json!("never")),
    ] {
        let mut other = claims();
        other[claim] = value.clone();
        let token = signed(&other);
        assert!(!is_valid(&tokens, &token, now()).await, "{claim} {value}");
    }
}

#[tokio::test]
async fn token_of_another_key_or_algorithm_is_rejected() {
    let fixture = Fixture::new().await;
    let tokens = fixture.tokens();
    issue(&tokens, now()).await;
    let (row, private) = fixture.newest().await;
    let foreign = Fixture::new().await;
    issue(&foreign.tokens(), now()).await;
    let (foreign_row, foreign_private) = foreign.newest().await;
    let mut rejected = vec![
        sign(&claims(), &row.kid, &foreign_private),
        sign(&claims(), &foreign_row.kid, &foreign_private),
        sign(&claims(), &foreign_row.kid, &private),
        sign(&claims(), "", &private),
        sign(&claims(), "../keys", &private),
    ];
    let without_kid = Header::new(Algorithm::EdDSA);
    rejected.push(encode(&without_kid, &claims(), &private).unwrap());
    // The public key as the secret of an HMAC, in each form that is published or stored.
    let text = BASE64_URL_SAFE_NO_PAD.encode(row.public_key);
    for secret in [&row.public_key[..], text.as_bytes()] {
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            let header = Header {
                kid: Some(row.kid.clone()),
                ..Header::new(algorithm)
            };
            let secret = EncodingKey::from_secret(secret);
            rejected.push(encode(&header, &claims(), &secret).unwrap());
        }
    }
    let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let valid = sign(&claims(), &row.kid, &private);
    let signature = valid.rsplit('.').next().unwrap();
    for algorithm in ["none", "None", "", "HS256", "ES256", "RS256"] {
        let header = part(json!({"alg": algorithm, "typ": "JWT", "kid": row.kid}));
        for signature in ["", signature] {
            rejected.push(format!("{header}.{}.{signature}", part(claims())));
        }
    }
    for token in rejected {
        assert!(!is_valid(&tokens, &token, now()).await, "{token}");
    }
    assert!(is_valid(&tokens, &valid, now()).await);
}

#[tokio::test]
async fn session_token_is_rejected_and_rejects_a_flow_token() {
    let fixture = Fixture::new().await;
    let tokens = fixture.tokens();
    let sessions = SessionTokens::new(&SecretSlice::from(vec![1; 32]));
    let FlowGrant {
        project, issuer, ..
    } = grant();
    let session = sessions.issue(&issuer, &BrowserId::generate(), &project, &Scope::Session);
    assert!(sessions.verify(&session).is_ok());
    assert!(!is_valid(&tokens, &session, now()).await);
    let flow = issue(&tokens, Utc::now()).await;
    assert!(tokens.verify(&flow).await.is_ok());
    assert!(sessions.verify(&flow).is_err());
}

#[tokio::test]
async fn long_token_is_rejected() {
    let fixture = Fixture::new().await;
    let tokens = fixture.tokens();
    issue(&tokens, now()).await;
    let (row, private) = fixture.newest().await;
    let with_padding = |length: usize| {
        let mut padded = claims();
        padded["padding"] = json!("a".repeat(length));
        sign(&padded, &row.kid, &private)
    };
    // Three bytes of a claim are four of the token.
    let empty = with_padding(0).len();
    let fitting = with_padding((MAX_LENGTH - empty) * 3 / 4);
    assert!((MAX_LENGTH - 4..=MAX_LENGTH).contains(&fitting.len()));
    assert!(is_valid(&tokens, &fitting, now()).await);
    let long = with_padding((MAX_LENGTH - empty) * 3 / 4 + 6);
    assert!((MAX_LENGTH + 1..MAX_LENGTH + 9).contains(&long.len()));
    assert!(!is_valid(&tokens, &long, now()).await);
}

#[tokio::test]
async fn token_of_the_key_before_is_valid_until_it_expires() {
    let fixture = Fixture::new().await;
    let (tokens, other_process) = (fixture.tokens(), fixture.tokens());
    let kid = |token: &str| decode_header(token).unwrap().kid.unwrap();
    let second = TimeDelta::seconds(1);
    let first = kid(&issue(&tokens, now()).await);
    let rotation = now() + ROTATION_AGE;
    assert_eq!(kid(&issue(&tokens, rotation - second).await), first);
    // From here on there is another key, which signs after a while.
    assert_eq!(kid(&issue(&tokens, rotation).await), first);
    assert_eq!(fixture.store.signing_keys().await.unwrap().len(), 2);
    let change = rotation + PUBLICATION_DELAY;
    let (last, expiry) = tokens.issue(&grant(), change - second).await.unwrap();
    assert_eq!(kid(&last), first);
    let new = issue(&other_process, change).await;
    assert_ne!(kid(&new), first);
    for tokens in [&tokens, &other_process, &fixture.tokens()] {
        assert!(is_valid(tokens, &last, expiry - second).await);
        assert!(is_valid(tokens, &new, change).await);
    }
    assert!(expiry < now() + MAX_AGE);
    assert_eq!(fixture.store.signing_keys().await.unwrap().len(), 2);
}

#[tokio::test]
async fn key_that_is_too_old_is_neither_accepted_nor_published_and_is_deleted() {
    let fixture = Fixture::new().await;
    let tokens = fixture.tokens();
    tokens.maintain_at(now()).await.unwrap();
    let (row, private) = fixture.newest().await;
    let mut lasting = claims();
    lasting["exp"] = json!((now() + MAX_AGE * 2).timestamp());
    let token = sign(&lasting, &row.kid, &private);
    let end = now() + MAX_AGE;
    let after = end + TimeDelta::milliseconds(1);
    let published = async |at| {
        let keys = tokens.public_keys_at(at).await.unwrap().keys;
        keys.into_iter().any(|key| key.kid == row.kid)
    };
    for tokens in [&tokens, &fixture.tokens()] {
        assert!(is_valid(tokens, &token, end).await);
        assert!(!is_valid(tokens, &token, after).await);
    }
    assert!(published(end).await);
    assert!(!published(after).await);
    tokens.maintain_at(end).await.unwrap();
    assert_eq!(fixture.store.signing_keys().await.unwrap().len(), 2);
    tokens.maintain_at(after).await.unwrap();
    let kept = fixture.store.signing_keys().await.unwrap();
    assert_eq!(kept.len(), 1);
    assert_ne!(kept[0].kid, row.kid);
}

#[tokio::test]
async fn processes_that_rotate_at_once_create_one_key() {
    let fixture = Fixture::new().await;
    for at in [now(), now() + ROTATION_AGE] {
        let rotating = (0..6).map(|_| {
            let tokens = fixture.tokens();
            async move { issue(&tokens, at).await }
        });
        let issued = futures::future::join_all(rotating).await;
        for token in issued {
            assert!(is_valid(&fixture.tokens(), &token, at).await);
        }
    }
    assert_eq!(fixture.store.signing_keys().await.unwrap().len(), 2);
}

#[tokio::test]
async fn published_keys_verify_tokens() {
    let fixture = Fixture::new().await;
    let tokens = fixture.tokens();
    assert_eq!(tokens.public_keys_at(now()).await.unwrap().keys, []);
    let old = issue(&tokens, now()).await;
    issue(&tokens, now() + ROTATION_AGE).await;
    let at = now() + ROTATION_AGE + PUBLICATION_DELAY;
    let new = issue(&tokens, at).await;
    let published = tokens.public_keys_at(at).await.unwrap();
    let set: JwkSet = serde_json::from_value(json!(published)).unwrap();
    assert_eq!(set.keys.len(), 2);
    for token in [old, new] {
        let kid = decode_header(&token).unwrap().kid.unwrap();
        let key = DecodingKey::from_jwk(set.find(&kid).unwrap()).unwrap();
        let validation = &tokens.inner.validation;
        assert!(decode::<Claims>(&token, &key, validation).is_ok());
    }
}

#[tokio::test]
async fn unknown_keys_cause_few_queries() {
    let fixture = Fixture::new().await;
    let (tokens, other_process) = (fixture.tokens(), fixture.tokens());
    let token = issue(&other_process, now()).await;
    // As if another request had just read the keys.
    let next_read = Instant::now() + Duration::from_hours(1);
    *tokens.inner.read_at.lock().await = Some(next_read);
    assert!(!is_valid(&tokens, &token, now()).await);
    *tokens.inner.read_at.lock().await = Some(Instant::now() - RELOAD_INTERVAL);
    assert!(is_valid(&tokens, &token, now()).await);
    // A known key needs none, and neither does an id that none can have.
    let (row, private) = fixture.newest().await;
    let unknown = sign(&claims(), "0123456789abcdef", &private);
    let malformed = sign(&claims(), &row.kid[1..], &private);
    fixture.store.clone().close().await.unwrap();
    *tokens.inner.read_at.lock().await = None;
    assert!(is_valid(&tokens, &token, now()).await);
    assert!(!is_valid(&tokens, &malformed, now()).await);
    let unavailable = tokens.verify_at(&unknown, now()).await;
    assert!(matches!(unavailable, Err(FlowTokenError::Store(_))));
}

#[tokio::test]
async fn private_key_opens_only_beside_its_public_key() {
    let fixture = Fixture::new().await;
    let tokens = fixture.tokens();
    issue(&tokens, now()).await;
    let (row, _) = fixture.newest().await;
    for (column, value) in [
        ("kid", "'0123456789abcdef'".to_owned()),
        ("public_key", format!("'{}'", "A".repeat(43))),
        ("key_version", "2".to_owned()),
    ] {
        let statement = format!("UPDATE signing_keys SET {column} = {value}");
        fixture.database.execute(&statement).await;
        let issued = tokens.issue(&grant(), now()).await;
        assert!(matches!(issued, Err(SecretError::Damaged)), "{column}");
        fixture
            .store
            .delete_signing_keys(now() + LIFETIME)
            .await
            .unwrap();
        assert!(
            fixture
                .store
                .add_signing_key(&row, now() - ROTATION_AGE)
                .await
                .unwrap()
        );
    }
    assert!(tokens.issue(&grant(), now()).await.is_ok());
}
