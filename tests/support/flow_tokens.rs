//! Issues tokens of login flows with the keys of a server, as its process does.

use berth::{
    api::ids::{AuthConnectionId, FlowId, ProjectId},
    control::{
        auth_connections::flow_tokens::{FlowGrant, FlowTokens},
        secrets::{Secrets, ring_source},
        session_token::Issuer,
        state_dir::StateDir,
        store::{PostgresConfig, Store},
    },
};
use chrono::{DateTime, Utc};
use serde_json::Value;

use super::dev::Dev;

/// The connections to a PostgreSQL database.
const CONNECTIONS: u32 = 2;

/// Returns the service with the keys of a server.
async fn flow_tokens(dev: &Dev) -> FlowTokens {
    let state_dir = StateDir::open(&dev.state_dir()).unwrap();
    let store = match dev.postgres() {
        Some(database) => {
            let config = PostgresConfig::parse(&database.url().into(), CONNECTIONS);
            Store::open_postgres(&config.unwrap()).await
        }
        None => Store::open_sqlite(&state_dir.database()).await,
    };
    let store = store.unwrap();
    let ring = ring_source::open(None, &state_dir, &store).await.unwrap();
    let secrets = Secrets::open(store.clone(), ring).await.unwrap();
    FlowTokens::new(store, secrets)
}

/// Issues a token for a connection and the API key with this text, at a time.
pub async fn issue_flow_token(
    dev: &Dev,
    connection: &Value,
    project: &str,
    api_key: &str,
    at: DateTime<Utc>,
) -> String {
    let connection: AuthConnectionId = connection["id"].as_str().unwrap().parse().unwrap();
    let project: ProjectId = project.parse().unwrap();
    let grant = FlowGrant {
        connection,
        flow: FlowId::generate(),
        project,
        issuer: Issuer {
            key: api_key.split('_').nth(1).unwrap().to_owned(),
            expires_at: None,
        },
    };
    let (token, _) = flow_tokens(dev).await.issue(&grant, at).await.unwrap();
    token
}
