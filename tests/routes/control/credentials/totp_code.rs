//! `/credentials/{id_or_name}/totp-code`.

use chrono::{DateTime, Utc};
use serde_json::json;
use totp_rs::{Builder, Secret};

use super::{TOTP_SECRET, create};
use crate::support::{dev::Dev, wait::until};

const WINDOW: &str = "/audit-logs?start=2020-01-01T00:00:00Z&end=2099-12-31T00:00:00Z&limit=100";

#[tokio::test]
async fn code_is_the_current_one() {
    let dev = Dev::start().await;
    let request = json!({"name": "shop", "domain": "example.com", "totp_secret": TOTP_SECRET});
    let created = dev.post("/credentials", request).await.body;
    let id = created["id"].as_str().unwrap();
    let totp = Builder::new()
        .with_secret(Secret::try_from_base32(TOTP_SECRET).unwrap())
        .build()
        .unwrap();
    for path in [
        "/credentials/shop/totp-code",
        "/credentials/shop/totp_code",
        &format!("/credentials/{id}/totp-code"),
    ] {
        let code = dev.get(path).await;
        assert_eq!(code.status, 200, "{}", code.body);
        assert_eq!(code.header("cache-control"), "no-store");
        let expiry: DateTime<Utc> = code.body["expires_at"].as_str().unwrap().parse().unwrap();
        let last_second = u64::try_from(expiry.timestamp() - 1).unwrap();
        let expected = totp.generate(last_second).to_string();
        assert_eq!(code.body["code"], expected);
        let remaining = expiry - Utc::now();
        assert!((-5..=30).contains(&remaining.num_seconds()), "{expiry}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn credential_without_secret_has_no_code() {
    let dev = Dev::start().await;
    create(&dev, "shop").await;
    let code = dev.get("/credentials/shop/totp-code").await;
    code.assert_error(404, "totp_not_configured");
    dev.finish().await;
}

#[tokio::test]
async fn reading_a_code_is_recorded_in_the_audit_log() {
    let dev = Dev::start().await;
    let request = json!({"name": "shop", "domain": "example.com", "totp_secret": TOTP_SECRET});
    dev.post("/credentials", request).await;
    dev.get("/credentials/shop/totp-code").await;
    for action in ["create_credential", "get_totp_code"] {
        until("the record of the request", async || {
            let found = dev.get(WINDOW).await;
            assert_eq!(found.status, 200, "{}", found.body);
            let records = found.body.to_string();
            records.contains(&format!("\"{action}\"")).then_some(())
        })
        .await;
    }
    dev.finish().await;
}
