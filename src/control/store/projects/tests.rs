//! Tests of the table of projects.

use futures::future::join_all;

use super::*;
use crate::control::store::{CreateBrowserError, NewBrowserRow, test_database::TestDatabase};

async fn store() -> (TestDatabase, Store, ProjectId) {
    let database = TestDatabase::create();
    let store = database.open().await;
    let project = store.default_project("default", Utc::now()).await.unwrap();
    (database, store, project.id)
}

const ARCHIVE: ProjectChange = ProjectChange {
    name: None,
    status: Some(ProjectStatus::Archived),
};

#[tokio::test]
async fn deleted_project_keeps_its_row_and_frees_its_name() {
    let (_directory, store, _) = store().await;
    let now = Utc::now();
    let first = store.create_project("p", now).await.unwrap().id;
    assert_eq!(
        store.delete_project(&first, now).await.unwrap(),
        ProjectOutcome::Done(())
    );
    assert_eq!(
        store.delete_project(&first, now).await.unwrap(),
        ProjectOutcome::NotFound
    );
    assert_eq!(store.find_project(&first).await.unwrap(), None);
    store.create_project("p", now).await.unwrap();
    let row = project::Entity::find_by_id(first.to_string()).one(&store.db);
    let row = row.await.unwrap().unwrap();
    assert_eq!((row.name.as_str(), row.live_name), ("p", None));
    assert_eq!(row.deleted_at, Some(to_millis(now)));
}

#[tokio::test]
async fn inactive_project_takes_no_browser() {
    let (_directory, store, _) = store().await;
    let now = Utc::now();
    let archived = store.create_project("a", now).await.unwrap().id;
    store
        .change_project(&archived, &ARCHIVE, now)
        .await
        .unwrap();
    let deleted = store.create_project("d", now).await.unwrap().id;
    store.delete_project(&deleted, now).await.unwrap();
    for project in [archived, deleted, ProjectId::generate()] {
        let refused = store
            .create_browser(NewBrowserRow::sample(&project), now)
            .await;
        assert!(
            matches!(refused, Err(CreateBrowserError::ProjectInactive)),
            "{refused:?}"
        );
    }
    assert_eq!(store.unfinished_browsers().await.unwrap(), []);
}

#[tokio::test]
async fn one_active_default_project_remains_after_concurrent_changes() {
    let (_directory, store, default) = store().await;
    let mut all = vec![default];
    for number in 0..12 {
        let created = store.create_project(&number.to_string(), Utc::now()).await;
        all.push(created.unwrap().id);
    }
    let changes = all.iter().enumerate().map(|(number, id)| {
        let store = &store;
        async move {
            let now = Utc::now();
            match number % 2 {
                0 => store.delete_project(id, now).await.unwrap(),
                _ => match store.change_project(id, &ARCHIVE, now).await.unwrap() {
                    ProjectOutcome::LastActive => ProjectOutcome::LastActive,
                    _ => ProjectOutcome::Done(()),
                },
            }
        }
    });
    let outcomes = join_all(changes).await;
    let refused = outcomes
        .iter()
        .filter(|outcome| **outcome == ProjectOutcome::LastActive);
    assert_eq!(refused.count(), 1);
    let listing = ProjectListing {
        limit: 100,
        ..ProjectListing::default()
    };
    let remaining = store.list_projects(&listing).await.unwrap();
    let active: Vec<ProjectRow> = remaining
        .into_iter()
        .filter(|row| row.status == ProjectStatus::Active)
        .collect();
    assert_eq!(active.len(), 1);
    let default = store.find_default_project().await.unwrap();
    assert_eq!(default.as_ref(), active.first());
}

#[tokio::test]
async fn project_is_never_deleted_beside_a_new_browser() {
    let (_directory, store, _) = store().await;
    for number in 0..20 {
        let now = Utc::now();
        let project = store.create_project(&number.to_string(), now).await;
        let project = project.unwrap().id;
        let (created, deleted) = tokio::join!(
            store.create_browser(NewBrowserRow::sample(&project), now),
            store.delete_project(&project, now)
        );
        match created {
            Ok(_) => assert_eq!(deleted.unwrap(), ProjectOutcome::NotEmpty),
            Err(error) => {
                assert!(
                    matches!(error, CreateBrowserError::ProjectInactive),
                    "{error:?}"
                );
                assert_eq!(deleted.unwrap(), ProjectOutcome::Done(()));
            }
        }
    }
}
