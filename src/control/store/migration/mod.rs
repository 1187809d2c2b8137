//! The history of the schema. A released migration is never edited; a change is a new file.

use sea_orm_migration::prelude::*;

mod m0001_projects_keys_browsers;
mod m0002_replays;

pub(crate) struct Migrator;

#[async_trait::async_trait]
impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![
            Box::new(m0001_projects_keys_browsers::Migration),
            Box::new(m0002_replays::Migration),
        ]
    }
}
