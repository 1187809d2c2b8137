//! `/.well-known/jwks.json`.

use chrono::Utc;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{
    dev::{Answer, Dev},
    flow_tokens::issue_flow_token,
    python::output_of,
    wait::until,
};

const PATH: &str = "/.well-known/jwks.json";
/// Prints the header and the claims of a token, and whether the published keys verify it.
const PROGRAM: &str = r"
    import { createPublicKey, verify } from 'node:crypto';
    const { token, keys } = JSON.parse(process.argv[1]);
    const [header, payload, signature] = token.split('.');
    const decode = (part) => JSON.parse(Buffer.from(part, 'base64url'));
    const jwk = keys.find((key) => key.kid === decode(header).kid);
    const key = createPublicKey({ key: jwk, format: 'jwk' });
    const check = (text) => verify(null, Buffer.from(text), key, Buffer.from(signature, 'base64url'));
    console.log(JSON.stringify({
        header: decode(header),
        claims: decode(payload),
        valid: check(`${header}.${payload}`),
        modified: check(`${header}.${payload}A`),
    }));
";

#[tokio::test]
async fn published_key_verifies_tokens_in_another_program() {
    let dev = Dev::start().await;
    let request = json!({"domain": "example.com", "profile_name": "shop"});
    let connection = dev.post("/auth/connections", request).await.body;
    let project = dev.get("/auth/context").await.body["project_id"].clone();
    let project = project.as_str().unwrap();
    // The server creates its first key when it starts.
    let published = until("the first key", async || {
        let published = Answer::of(dev.anonymous(Method::GET, PATH)).await;
        assert_eq!(published.status, 200, "{}", published.body);
        (published.body["keys"] != json!([])).then_some(published)
    })
    .await;
    assert_eq!(published.header("cache-control"), "public, max-age=300");
    let keys = published.body["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 1);
    let key = keys[0].as_object().unwrap();
    let mut names: Vec<&String> = key.keys().collect();
    names.sort();
    assert_eq!(names, ["alg", "crv", "kid", "kty", "use", "x"]);

    let now = Utc::now();
    let token = issue_flow_token(&dev, &connection, project, &dev.api_key, now).await;
    let mut node = Command::new("node");
    node.args(["--input-type=module", "--eval", PROGRAM, "--"]);
    let input = json!({"token": token, "keys": keys}).to_string();
    let printed = output_of(node.arg(input)).await;
    let found: Value = serde_json::from_str(&printed).unwrap();
    let header = json!({"typ": "JWT", "alg": "EdDSA", "kid": key["kid"]});
    assert_eq!(found["header"], header);
    assert_eq!(found["claims"]["sub"], connection["id"]);
    assert_eq!(found["claims"]["iss"], "berth");
    assert_eq!(found["claims"]["aud"], "berth:auth-flow");
    assert_eq!(found["claims"]["iat"], now.timestamp());
    assert_eq!(found["claims"]["exp"], now.timestamp() + 30 * 60);
    assert_eq!(found["valid"], true);
    assert_eq!(found["modified"], false);
    dev.finish().await;
}
