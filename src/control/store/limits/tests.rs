//! Tests of the limits of projects.

use chrono::Utc;
use deserr::errors::JsonError;
use futures::future::join_all;
use serde_json::json;

use super::*;
use crate::{
    api::ids::{BrowserId, HostId},
    control::{
        browsers::state::EndReason,
        store::{BrowserRow, CreateBrowserError, NewBrowserRow, test_database::TestDatabase},
    },
};

async fn open(database: &TestDatabase) -> (Store, ProjectId) {
    let store = database.open().await;
    let project = store.default_project("default", Utc::now()).await.unwrap();
    (store, project.id)
}

fn limits(sessions: u32) -> UpdateProjectLimits {
    let value = json!({"max_concurrent_sessions": sessions});
    deserr::deserialize::<_, _, JsonError>(value).unwrap()
}

fn default_limit(sessions: u32) -> NewLimit {
    deserr::deserialize::<_, _, JsonError>(json!(sessions)).unwrap()
}

async fn create(store: &Store, project: &ProjectId) -> Result<BrowserRow, CreateBrowserError> {
    let row = NewBrowserRow::sample(project);
    store.create_browser(row, Utc::now()).await
}

/// Creates `count` browsers at once. Returns those that the limit permitted.
async fn create_many(
    store: &Store,
    project: &ProjectId,
    count: usize,
    limit: u32,
) -> Vec<BrowserRow> {
    let created = join_all((0..count).map(|_| {
        let (store, project) = (store.clone(), project.clone());
        tokio::spawn(async move { create(&store, &project).await })
    }));
    let mut permitted = Vec::new();
    for created in created.await {
        match created.unwrap() {
            Ok(row) => permitted.push(row),
            Err(CreateBrowserError::LimitReached(reached)) => assert_eq!(reached, limit),
            Err(error) => panic!("{error}"),
        }
    }
    permitted
}

async fn end(store: &Store, id: &BrowserId) {
    assert!(
        store
            .publish_browser(id, &HostId::generate(), 1, Utc::now())
            .await
            .unwrap()
    );
    let ended = store.withdraw_browser(id, EndReason::Deleted, Utc::now());
    assert!(ended.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_creations_reach_the_limit_exactly_and_an_ended_browser_frees_its_place() {
    for limit in [1_u32, 3, 8] {
        let database = TestDatabase::create();
        let (store, project) = open(&database).await;
        let change = limits(limit);
        store
            .change_project_limits(&project, &change)
            .await
            .unwrap();
        // Those of another project do not count.
        let other = store.create_project("other", Utc::now()).await.unwrap().id;
        assert_eq!(create_many(&store, &other, 10, limit).await.len(), 10);

        let mut live = create_many(&store, &project, 30, limit).await;
        assert_eq!(live.len(), limit as usize);
        assert!(create_many(&store, &project, 5, limit).await.is_empty());

        end(&store, &live.pop().unwrap().id).await;
        live.extend(create_many(&store, &project, 10, limit).await);
        assert_eq!(live.len(), limit as usize);
        // A browser that did not start frees its place, too.
        let failed = live.pop().unwrap().id;
        store.delete_creating_browser(&failed).await.unwrap();
        live.extend(create_many(&store, &project, 10, limit).await);
        assert_eq!(live.len(), limit as usize);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn limit_is_never_exceeded_while_browsers_start_and_end() {
    const LIMIT: u32 = 3;
    let database = TestDatabase::create();
    let (store, project) = open(&database).await;
    let change = limits(LIMIT);
    store
        .change_project_limits(&project, &change)
        .await
        .unwrap();
    let clients = join_all((0..12).map(|_| {
        let (store, project) = (store.clone(), project.clone());
        tokio::spawn(async move {
            let mut created = 0;
            for _ in 0..10 {
                match create(&store, &project).await {
                    Ok(row) => {
                        created += 1;
                        let live = browsers::count_live(&store.db, &project).await.unwrap();
                        assert!((1..=LIMIT.into()).contains(&live), "{live}");
                        end(&store, &row.id).await;
                    }
                    Err(error) => {
                        assert!(matches!(error, CreateBrowserError::LimitReached(LIMIT)));
                    }
                }
            }
            created
        })
    }));
    let created: u32 = clients.await.into_iter().map(Result::unwrap).sum();
    assert!(created >= 10, "{created}");
    assert_eq!(browsers::count_live(&store.db, &project).await.unwrap(), 0);
}

#[tokio::test]
async fn own_limit_precedes_that_of_the_organization() {
    let database = TestDatabase::create();
    let (store, project) = open(&database).await;
    let default = async |sessions| {
        let limit = default_limit(sessions);
        store.set_default_project_limit(limit).await.unwrap();
    };
    default(1).await;
    assert_eq!(create_many(&store, &project, 3, 1).await.len(), 1);
    store
        .change_project_limits(&project, &limits(2))
        .await
        .unwrap();
    assert_eq!(create_many(&store, &project, 3, 2).await.len(), 1);
    // Zero removes a limit.
    store
        .change_project_limits(&project, &limits(0))
        .await
        .unwrap();
    assert_eq!(create_many(&store, &project, 3, 1).await.len(), 0);
    default(0).await;
    assert_eq!(create_many(&store, &project, 3, 0).await.len(), 3);
    assert_eq!(store.count_live_browsers().await.unwrap(), 5);
}
