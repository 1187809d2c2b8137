//! The history of the schema. A released migration is never edited; a change is a new file.

use sea_orm_migration::prelude::*;

mod m0001_projects_keys_browsers;
mod m0002_replays;
mod m0003_purge_clock;
mod m0004_organization;
mod m0006_api_key_records;

pub(crate) struct Migrator;

#[async_trait::async_trait]
impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![
            Box::new(m0001_projects_keys_browsers::Migration),
            Box::new(m0002_replays::Migration),
            Box::new(m0003_purge_clock::Migration),
            Box::new(m0004_organization::Migration),
            Box::new(m0006_api_key_records::Migration),
        ]
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use sea_orm::{ConnectionTrait, Database, EntityTrait};

    use super::*;
    use crate::control::store::{
        Store,
        entity::{api_key, organization},
    };

    #[tokio::test]
    async fn database_of_every_earlier_version_is_migrated() {
        for applied in (1_u32..).take(Migrator::migrations().len() - 1) {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("old.db");
            let url = format!("sqlite:{}?mode=rwc", file.display());
            let old = Database::connect(url).await.unwrap();
            Migrator::up(&old, Some(applied)).await.unwrap();
            let insert = "INSERT INTO projects (id, name, live_name, status, created_at, updated_at) \
                VALUES ('proj_00000000000000000000000000', 'p', 'p', 'active', 0, 0)";
            old.execute_unprepared(insert).await.unwrap();
            let insert = "INSERT INTO api_keys (id, name, public_part, digest, created_at, updated_at) \
                VALUES ('key_00000000000000000000000000', 'k', '0', x'00', 0, 0)";
            old.execute_unprepared(insert).await.unwrap();
            old.close().await.unwrap();

            let store = Store::open_sqlite(&file).await.unwrap();
            let found = store.find_project_named("p").await.unwrap();
            assert!(found.is_some(), "{applied}");
            let organization = organization::Entity::find().all(&store.db).await.unwrap();
            assert_eq!(organization.len(), 1);
            let key = api_key::Entity::find()
                .one(&store.db)
                .await
                .unwrap()
                .unwrap();
            assert_eq!((key.name.as_str(), key.deleted_at), ("k", None));
            store.default_project("default", Utc::now()).await.unwrap();
            assert_eq!(store.purge_clock().await.unwrap(), None);
        }
    }
}
