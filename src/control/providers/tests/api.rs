//! Scripts of servers without failures. Both have the item `Team/Login` with the same values.

use http::header::AUTHORIZATION;
use serde_json::{Value, json};

use super::TOKEN;
use crate::{
    api::credential_providers::ProviderType,
    control::providers::ItemRef,
    system::outbound::tests::server::{ReceivedRequest, Reply},
};

pub(super) const KINDS: [ProviderType; 2] = [ProviderType::VendorPassword, ProviderType::Kv];
pub(super) const PASSWORD: &str = "canary-password";
pub(super) const TOTP_SECRET: &str = "CANARYTOTPSECRET";

/// Returns the first request of a list.
pub(super) fn first_target(kind: ProviderType) -> &'static str {
    match kind {
        ProviderType::VendorPassword => "/v1/vaults",
        ProviderType::Kv => "/v1/sys/internal/ui/mounts",
    }
}

/// Returns the ids of `Team/Login`.
pub(super) fn login(kind: ProviderType) -> ItemRef {
    let (vault_id, item_id) = match kind {
        ProviderType::VendorPassword => ("vault1", "item1"),
        ProviderType::Kv => ("Team", "Login"),
    };
    ItemRef {
        vault_id: vault_id.to_owned(),
        item_id: item_id.to_owned(),
    }
}

/// Responds as the API of a kind.
pub(super) fn respond(kind: ProviderType, request: &ReceivedRequest) -> Reply {
    let (presented, expected) = match kind {
        ProviderType::VendorPassword => (
            request.headers.get(AUTHORIZATION),
            format!("Bearer {TOKEN}"),
        ),
        ProviderType::Kv => (request.headers.get("x-vault-token"), TOKEN.to_owned()),
    };
    if presented.is_none_or(|presented| presented != expected.as_str()) {
        return Reply::Failure(401, "unexpected token");
    }
    let body = match kind {
        ProviderType::VendorPassword => vendorpassword_body(&request.target),
        ProviderType::Kv => kv_body(&request.target),
    };
    body.map_or(Reply::Status(404), Reply::Json)
}

fn vendorpassword_body(target: &str) -> Option<Value> {
    let item = json!({
        "id": "item1",
        "title": "Login",
        "vault": {"id": "vault1"},
        "category": "LOGIN",
        "urls": [
            {"href": "https://www.example.com"},
            {"href": "https://login.example.com/", "primary": true},
        ],
        "createdAt": "2026-11-24T10:00:00Z",
    });
    Some(match target {
        "/v1/vaults" => json!([{"id": "vault1", "name": "Team", "items": 1}]),
        "/v1/vaults/vault1/items" => json!([item]),
        "/v1/vaults/vault1/items/item1" => {
            let mut item = item;
            item["fields"] = json!([
                {"id": "username", "type": "STRING", "purpose": "USERNAME", "label": "user", "value": "alice"},
                {"id": "password", "type": "CONCEALED", "purpose": "PASSWORD", "label": "password",
                 "value": PASSWORD, "entropy": 98.5},
                {"id": "notesPlain", "type": "STRING", "purpose": "NOTES", "label": "notesPlain"},
                {"id": "TOTP_1", "type": "OTP", "label": "one-time password",
                 "value": TOTP_SECRET, "totp": "123456"},
                {"id": "f1", "type": "STRING", "label": "tenant", "value": "berth",
                 "section": {"id": "s1"}},
            ]);
            item
        }
        _ => return None,
    })
}

fn kv_body(target: &str) -> Option<Value> {
    Some(match target {
        "/v1/sys/internal/ui/mounts" => json!({"data": {
            "auth": {"token/": {"type": "token"}},
            "secret": {
                "Team/": {"type": "kv", "options": {"version": "2"}},
                "old/": {"type": "kv", "options": {"version": "1"}},
                "cubbyhole/": {"type": "cubbyhole", "options": null},
            },
        }}),
        "/v1/Team/metadata?list=true" => json!({"data": {"keys": ["Login"]}}),
        "/v1/Team/metadata/Login" => json!({"data": {
            "current_version": 3,
            "custom_metadata": {
                "url": "https://login.example.com/",
                "urls": "https://www.example.com",
                "owner": "alice",
            },
            "versions": {},
        }}),
        "/v1/Team/data/Login" => json!({"data": {
            "data": {
                "username": "alice",
                "password": PASSWORD,
                "totp": TOTP_SECRET,
                "tenant": "berth",
                "urls": "https://login.example.com/,https://www.example.com",
            },
            "metadata": {"version": 3},
        }}),
        _ => return None,
    })
}
