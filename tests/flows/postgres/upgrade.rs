//! Control processes beside a newer program, which has migrated their database.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::several_processes::{Processes, begins_to_lead, call, connect, further, path};
use crate::support::{
    agent::Start,
    dev::Dev,
    fleet_agent::{host_is, join},
    printed::print,
    wait::until,
};

/// The audit log of all deletions.
const DELETIONS: &str =
    "/audit-logs?start=2020-01-01T00:00:00Z&end=2100-01-01T00:00:00Z&limit=100&method=DELETE";

/// Changes the schema like the migration of a newer program: each table has a further column, and
/// there is a further table.
async fn migrate_like_a_newer_program(dev: &Dev) {
    let query = "SELECT tablename FROM pg_tables \
                 WHERE schemaname = current_schema() AND tablename <> 'seaql_migrations'";
    let tables = dev.rows(query).await;
    for row in tables {
        let table: String = row.try_get("", "tablename").unwrap();
        // Each in a transaction of its own, in which no lock waits for that of another table.
        let column = format!("ALTER TABLE {table} ADD COLUMN added boolean NOT NULL DEFAULT false");
        dev.sql(&column).await;
    }
    dev.sql("CREATE TABLE added (id bigint PRIMARY KEY)").await;
    dev.sql("INSERT INTO seaql_migrations VALUES ('m9999_added', 0)")
        .await;
}

/// Calls routes that use the tables of the database at a control process.
async fn use_database(dev: &Dev, agent: &Value) {
    let created = dev.post("/org/projects", json!({"name": "p"})).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let project = format!("/org/projects/{}", created.body["id"].as_str().unwrap());
    assert_eq!(dev.delete(&project).await.status, 204);
    let created = dev.post("/org/api_keys", json!({"name": "k"})).await;
    let key = format!("/org/api_keys/{}", created.body["id"].as_str().unwrap());
    assert_eq!(dev.delete(&key).await.status, 204);
    let created = dev.post("/fleet/join_tokens", json!({})).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let browser = dev.browser(json!({"name": "n", "tags": {"a": "b"}})).await;
    let replays = format!("{}/replays", path(&browser));
    assert_eq!(dev.get(&replays).await.status, StatusCode::OK);
    let mut client = connect(dev, &browser).await;
    call(&mut client).await;
    assert_eq!(dev.delete("/browsers/n").await.status, 204);
    host_is(dev, agent, "ready").await;
    let ended = dev.get("/browsers?status=deleted&query=n").await;
    assert!(!ended.body.as_array().unwrap().is_empty(), "{}", ended.body);
    until("a deletion in the audit log", async || {
        let recorded = dev.get(DELETIONS).await;
        assert_eq!(recorded.status, StatusCode::OK, "{}", recorded.body);
        recorded.body.to_string().contains(&project).then_some(())
    })
    .await;
}

#[tokio::test]
async fn processes_continue_after_the_migration_of_a_newer_one() {
    let Processes {
        s3: _s3,
        variables,
        leader,
        other,
    } = Processes::start().await;
    let (agent, host) = join(&other, Start::headless()).await;
    let browser = leader.browser(json!({})).await;
    let mut client = connect(&other, &browser).await;
    migrate_like_a_newer_program(&leader).await;
    call(&mut client).await;
    assert_eq!(other.delete(&path(&browser)).await.status, 204);
    host_is(&leader, &host, "ready").await;
    for dev in [&leader, &other] {
        use_database(dev, &host).await;
    }
    let mut third = further(&leader, "registered", &other.state_dir().join("third"));
    third.envs(variables);
    let refused = print(third).await;
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("m9999_added"), "{}", refused.stderr);
    let _state = leader.kill().await;
    begins_to_lead(&other).await;
    use_database(&other, &host).await;
    let log = other.log();
    let is_error = |line: &&str| line.contains(" ERROR ") && !line.contains("berth_agent");
    assert_eq!(log.lines().find(is_error), None, "{log}");
    agent.stop().await;
    other.finish().await;
}
