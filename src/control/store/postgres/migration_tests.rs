//! The migrations add to the schema what older programs need not know: a fleet is upgraded one
//! control process after the other.

use std::collections::BTreeMap;

use sea_orm::{ConnectionTrait, DbBackend, Statement};
use sea_orm_migration::MigratorTrait;

use super::*;
use crate::control::store::{
    migration::Migrator, test_database::postgres_database::PostgresDatabase,
};

/// The first migration with which several control processes serve from a database.
const FIRST_SHARED: &str = "m0012_control_processes";

/// A column, or a rule for the rows of a table.
#[derive(Debug, PartialEq)]
struct Rule {
    definition: String,
    /// Whether rows may be written by a program that does not know it.
    is_optional: bool,
}

/// Returns, for each table, descriptions of its columns and of the constraints on its rows, also of
/// those of other tables that refer to them.
async fn schema(db: &DatabaseConnection) -> BTreeMap<String, BTreeMap<String, Rule>> {
    let query = "SELECT table_name::text AS table, column_name::text AS name, \
            data_type || coalesce(' DEFAULT ' || column_default, '') AS rule, is_nullable = 'YES' OR column_default IS NOT NULL \
            OR is_identity = 'YES' AS optional \
            FROM information_schema.columns WHERE table_schema = current_schema() \
        UNION ALL SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid), false \
            FROM pg_constraint WHERE conrelid <> 0 AND contype <> 'n' \
            AND connamespace = current_schema()::regnamespace \
        UNION ALL SELECT confrelid::regclass::text, 'referred to by ' || conname, \
            pg_get_constraintdef(oid), confdeltype IN ('c', 'n') FROM pg_constraint \
            WHERE confrelid <> 0 AND connamespace = current_schema()::regnamespace \
        UNION ALL SELECT tgrelid::regclass::text, tgname::text, pg_get_triggerdef(oid), false \
            FROM pg_trigger WHERE NOT tgisinternal \
        UNION ALL SELECT tablename::text, indexname::text, indexdef::text, \
            indexdef NOT LIKE 'CREATE UNIQUE%' FROM pg_indexes WHERE schemaname = current_schema()";
    let statement = Statement::from_string(DbBackend::Postgres, query);
    let mut tables: BTreeMap<String, BTreeMap<String, Rule>> = BTreeMap::new();
    for row in db.query_all_raw(statement).await.unwrap() {
        let text = |column| row.try_get::<String>("", column).unwrap();
        let rule = Rule {
            definition: text("rule"),
            is_optional: row.try_get("", "optional").unwrap(),
        };
        tables
            .entry(text("table"))
            .or_default()
            .insert(text("name"), rule);
    }
    tables
}

#[tokio::test]
async fn programs_continue_after_the_migration_of_a_newer_one() {
    let database = PostgresDatabase::required();
    let config = PostgresConfig::parse(&database.url().into(), 1).unwrap();
    let db = connect(&config).await.unwrap();
    let names: Vec<String> = Migrator::migrations()
        .iter()
        .map(|each| each.name().to_owned())
        .collect();
    let shared = names.iter().position(|name| name == FIRST_SHARED).unwrap() + 1;
    Migrator::up(&db, Some(u32::try_from(shared).unwrap()))
        .await
        .unwrap();
    for name in &names[shared..] {
        let before = schema(&db).await;
        Migrator::up(&db, Some(1)).await.unwrap();
        let after = schema(&db).await;
        for (table, rules) in before {
            for (rule, definition) in &rules {
                assert_eq!(
                    after[&table].get(rule),
                    Some(definition),
                    "{name}: {table}.{rule}"
                );
            }
            let added = after[&table]
                .iter()
                .filter(|(rule, _)| !rules.contains_key(*rule));
            for (rule, definition) in added {
                assert!(
                    definition.is_optional,
                    "{name}: {table}.{rule}: {definition:?}"
                );
            }
        }
    }
    db.close().await.unwrap();
}
