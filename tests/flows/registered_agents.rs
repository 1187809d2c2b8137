//! Agents that register themselves at control.

use std::{fs, net::SocketAddr, os::unix::fs::PermissionsExt, time::Duration};

use berth::{
    api::ids::HostId,
    control::fleet::{AgentAccess, AgentClient, AgentEndpoint},
    system::identity::{Authority, HostKey, TokenAudience},
};
use chrono::Utc;
use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    dev::{Dev, berth},
    fleet_agent::{control_tls, host_when, joining, ready},
    fleet_host::{FleetHost, heartbeat, join_token, register, registration_at},
    printed::print,
    processes,
    wait::until,
};

const TIMEOUT: Duration = Duration::from_secs(20);

async fn reaches(tls: ClientConfig, host: &Value, address: &str) -> Result<(), String> {
    let id: HostId = host["id"].as_str().unwrap().parse().unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let endpoint = AgentEndpoint {
        address,
        access: AgentAccess::Certificate(id),
        generation: None,
    };
    let client = AgentClient::for_registered_hosts(tls);
    let reached = client.wait_ready(&endpoint, TIMEOUT).await;
    reached.map_err(|error| error.to_string())
}

#[tokio::test]
async fn two_agents_join_by_token_and_one_that_is_killed_is_lost() {
    let dev = Dev::with(&["--heartbeat-seconds", "1"]).await;
    let token = join_token(&dev, json!({"uses": 2, "labels": {"zone": "a"}})).await;
    let first = joining(Start::headless(), &dev, &token).listening().await;
    let second = joining(Start::headless(), &dev, &token).listening().await;
    let (first_host, second_host) = (ready(&dev, &first).await, ready(&dev, &second).await);
    assert_ne!(first_host["id"], second_host["id"]);
    assert_eq!(first_host["labels"], json!({"zone": "a"}));
    let capabilities = &first_host["capabilities"];
    let found = (&capabilities["display"], &capabilities["engine"]);
    assert_eq!(found, (&json!(false), &json!("chromium")));
    assert_eq!(first_host["generation"], 1);
    let tokens = dev.get("/fleet/join_tokens").await.body;
    assert_eq!(tokens[0]["remaining_uses"], 0);

    let directory = first.kill().await;
    let is_lost = |host: &Value| host["id"] == first_host["id"] && host["state"] == "lost";
    host_when(&dev, "the lost host", is_lost).await;
    assert_eq!(ready(&dev, &second).await["id"], second_host["id"]);

    // It returns with its own key, at another port, and is recycled.
    let start = TestAgent::again(directory).with(["--headless"]);
    let again = joining(start, &dev, &token).listening().await;
    let returned = ready(&dev, &again).await;
    assert_eq!(
        (&returned["id"], &returned["generation"]),
        (&first_host["id"], &json!(2))
    );
    again.stop().await;
    second.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn only_control_reaches_the_agent() {
    let dev = Dev::start().await;
    let token = join_token(&dev, json!({"uses": 2})).await;
    let agent = joining(Start::headless(), &dev, &token).listening().await;
    let host = ready(&dev, &agent).await;
    let address = host["address"].as_str().unwrap();
    reaches(control_tls(&dev), &host, address).await.unwrap();

    let plain = format!("http://{address}/health");
    assert!(agent.http.get(plain).send().await.is_err());
    let other = Authority::from_pem(&Authority::generate().unwrap()).unwrap();
    let foreign = other.client_config(Utc::now()).unwrap();
    assert!(reaches(foreign, &host, address).await.is_err());
    let mut anonymous = control_tls(&dev);
    anonymous.client_auth_cert_resolver = std::sync::Arc::new(NoCertificate);
    assert!(reaches(anonymous, &host, address).await.is_err());
    // Control does not take one host for another.
    let mistaken = FleetHost::register(&dev).await;
    let mistaken = mistaken.record(&dev).await;
    let error = reaches(control_tls(&dev), &mistaken, address).await;
    assert!(error.unwrap_err().contains("certificate"));
    agent.stop().await;
    dev.finish().await;
}

/// A client without a certificate.
#[derive(Debug)]
struct NoCertificate;

impl rustls::client::ResolvesClientCert for NoCertificate {
    fn resolve(
        &self,
        _authorities: &[&[u8]],
        _schemes: &[rustls::SignatureScheme],
    ) -> Option<std::sync::Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn host_with_the_address_of_another_one_is_never_ready() {
    let dev = Dev::start().await;
    let honest = FleetHost::register(&dev).await;
    let token = join_token(&dev, json!({})).await;
    let key = HostKey::generate().unwrap();
    let answer = register(&dev, &token, &registration_at(&key, honest.address)).await;
    let path = format!("/fleet/hosts/{}", answer.body["host_id"].as_str().unwrap());
    let report = json!({"boot_id": "first-boot", "generation": 1, "ready": true});
    let heartbeat_token = key.token(TokenAudience::Heartbeat);
    let answer = heartbeat(&dev, &path, &heartbeat_token.unwrap(), &report).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["state"]),
        (200, &json!("starting"))
    );
    let reported = honest.report(&dev, 1, true).await;
    assert_eq!(reported.body["state"], "ready");
    assert!(dev.log().contains("cannot reach a host that has started"));
    dev.finish().await;
}

#[tokio::test]
async fn agent_that_control_has_deleted_joins_again() {
    let dev = Dev::with(&["--heartbeat-seconds", "1"]).await;
    let token = join_token(&dev, json!({"uses": 2})).await;
    let start = Start::without_browser();
    let agent = joining(start, &dev, &token).listening().await;
    let first = host_when(&dev, "the host", |_| true).await;
    let path = format!("/fleet/hosts/{}", first["id"].as_str().unwrap());
    assert_eq!(dev.delete(&path).await.status, 204);
    let is_other = |host: &Value| host["id"] != first["id"];
    host_when(&dev, "the new host", is_other).await;
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn secrets_of_an_agent_are_in_private_files_only() {
    let dev = Dev::start().await;
    let token = join_token(&dev, json!({})).await;
    let agent = joining(Start::without_browser(), &dev, &token)
        .logging("trace,hyper=info")
        .listening()
        .await;
    let directory = agent.state_dir();
    let host = host_when(&dev, "the host", |_| true).await;
    assert_eq!(host["version"], env!("CARGO_PKG_VERSION"));
    until("the registration in the log", async || {
        agent.log().contains("registered at control").then_some(())
    })
    .await;
    let key_file = directory.join("run/host-key.pem");
    let key = fs::read_to_string(&key_file).unwrap();
    let mode = fs::metadata(&key_file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let private_line = key.lines().nth(1).unwrap();
    let log = agent.log();
    let command_lines = processes::naming(&directory);
    for secret in [token.as_str(), private_line] {
        assert!(!log.contains(secret), "{secret} in the log");
        assert!(
            !command_lines
                .iter()
                .any(|process| process.command.contains(secret))
        );
        assert!(!dev.log().contains(secret));
    }
    // Its tokens are JSON Web Tokens.
    assert!(!log.contains("eyJ"), "a token in the log");
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn refused_join_token_is_reported_and_tried_again() {
    let dev = Dev::start().await;
    let token = join_token(&dev, json!({})).await;
    let tokens = dev.get("/fleet/join_tokens").await.body;
    let path = format!("/fleet/join_tokens/{}", tokens[0]["id"].as_str().unwrap());
    assert_eq!(dev.delete(&path).await.status, 204);
    let agent = joining(Start::without_browser(), &dev, &token)
        .listening()
        .await;
    until("two attempts", async || {
        let refusal = "control responded 401 Unauthorized: the join token is not valid";
        (agent.log().matches(refusal).count() >= 2).then_some(())
    })
    .await;
    assert_eq!(dev.get("/fleet/hosts").await.body, json!([]));
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn invalid_settings_of_a_registration_are_reported() {
    let check = async |options: &[&str]| {
        let mut command = berth(&["check", "agent", "--state-dir", "/nowhere"]);
        command
            .args(["--headless", "--chromium", "/bin/true"])
            .args(options);
        print(command).await.stderr
    };
    let https = ["--control-url", "https://control.example"];
    for (options, reason) in [
        (&["--control-url", "control.example"][..], "control-url"),
        (
            &["--control-url", "ftp://control.example"],
            "must be an https or http URL",
        ),
        (
            &["--control-url", "https://key@control.example"],
            "must have no user",
        ),
        (
            &["--control-url", "http://control.example"],
            "--allow-plain-http",
        ),
        (&["--join-token-file", "/nowhere"], "without --control-url"),
        (&["--advertise", "10.0.0.7:1"], "without --control-url"),
    ] {
        let printed = check(options).await;
        assert!(printed.contains(reason), "{options:?}: {printed}");
    }
    for (options, reason) in [
        (
            &["--advertise", "control.example:1"][..],
            "must be an IP address",
        ),
        (&["--join-token-file", "/dev/null"], "not a small file"),
    ] {
        let printed = check(&[&https[..], options].concat()).await;
        assert!(printed.contains(reason), "{options:?}: {printed}");
    }
    for address in [
        &["--listen", "0.0.0.0:1", "--advertise", "10.0.0.7:1"][..],
        &["--listen", "0.0.0.0:1"],
    ] {
        let accepted = check(&[&https[..], address].concat()).await;
        assert!(
            !accepted.contains("control-url") && !accepted.contains("advertise"),
            "{accepted}"
        );
    }
}
