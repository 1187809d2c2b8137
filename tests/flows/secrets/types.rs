//! The types with secrets. A panic message, an error or a log contains a value only if its type can
//! be printed or serialized, which none of these can.

use std::fmt::{Debug, Display};

use berth::{
    api::{
        credential_fill::{AgentFillRequest, FillValues},
        credentials::{CreateCredential, CredentialValues, TotpSecret, UpdateCredential},
        login_page::{InspectLoginRequest, RedactedValues},
        secret_text::SecretText,
    },
    control::{
        auth_connections::flow_tokens::FlowTokens,
        providers::{ItemSecrets, ProviderConfig, SecretField},
        secret_token::GeneratedToken,
        secrets::{DataKeys, Secrets, key::OperatorKey, key_ring::KeyRing},
        session_token::SessionTokens,
    },
    http::StaticToken,
    system::{
        identity::{Authority, HostKey},
        locked_memory::LockedBytes,
    },
};
use secrecy::{SecretSlice, SecretString};
use serde::Serialize;
use static_assertions::assert_not_impl_any;

use super::{
    encodings::PlantedSecret,
    search::{LeakSearch, OutputKind},
};

macro_rules! assert_not_printable {
    ($($secret:ty),+ $(,)?) => {
        $(assert_not_impl_any!($secret: Debug, Display, Serialize);)+
    };
}

assert_not_printable!(
    AgentFillRequest,
    Authority,
    CreateCredential,
    CredentialValues,
    DataKeys,
    FillValues,
    GeneratedToken,
    HostKey,
    InspectLoginRequest,
    ItemSecrets,
    LockedBytes,
    OperatorKey,
    ProviderConfig,
    RedactedValues,
    SecretField,
    SecretText<1, 4096>,
    Secrets,
    StaticToken,
    TotpSecret,
    UpdateCredential,
);

// These have a `Debug` without the secret.
assert_not_impl_any!(KeyRing: Display, Serialize);
assert_not_impl_any!(SecretString: Display, Serialize);
assert_not_impl_any!(SecretSlice<u8>: Display, Serialize);
assert_not_impl_any!(SessionTokens: Display, Serialize);
assert_not_impl_any!(FlowTokens: Display, Serialize);

#[test]
fn debug_output_has_no_secret() {
    let key = "5f".repeat(32);
    let (text, bytes) = (SecretString::from(key.clone()), key.clone().into_bytes());
    let bytes = SecretSlice::from(bytes);
    let printed = [
        format!("{text:?}"),
        format!("{bytes:?}"),
        format!("{:?}", KeyRing::parse(&text).unwrap()),
        format!("{:?}", SessionTokens::new(&bytes)),
    ];
    let secrets = [
        PlantedSecret::new("text", key.as_str()),
        PlantedSecret::new("bytes", [0x5f; 32]),
    ];
    let mut search = LeakSearch::new(&secrets);
    for text in &printed {
        search.bytes(OutputKind::PanicMessage, "debug", text.as_bytes());
    }
    assert_eq!(search.findings().count(), 0, "{printed:?}");
}
