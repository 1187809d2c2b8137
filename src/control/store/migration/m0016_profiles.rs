//! Creates the tables of profiles, and records which profile a browser has.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum Profiles {
    Table,
    Id,
    ProjectId,
    Name,
    LiveName,
    Version,
    SizeBytes,
    CreatedAt,
    UpdatedAt,
    LastUsedAt,
    DeletedAt,
    SaveError,
    SaveFailedAt,
}

#[derive(DeriveIden)]
enum ProfileVersions {
    Table,
    ProfileId,
    Number,
    Blob,
    SizeBytes,
    Receipt,
    ChromiumVersion,
    RestoredFrom,
    CreatedAt,
}

#[derive(DeriveIden)]
enum ProfileOperations {
    Table,
    Id,
    ProfileId,
    SavingProfileId,
    BaseVersion,
    Blob,
    ProcessId,
    StartedAt,
}

#[derive(DeriveIden)]
enum ProfileBlobRemovals {
    Table,
    Blob,
    ProcessId,
    StartedAt,
}

#[derive(DeriveIden)]
enum Browsers {
    Table,
    ProfileId,
    SaveChanges,
}

#[derive(DeriveIden)]
enum ProfileWriteLocks {
    Table,
    ProfileId,
    BrowserId,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.create_table(profiles()).await?;
        manager.create_table(versions()).await?;
        let operations = Table::create()
            .table(ProfileOperations::Table)
            .col(text(ProfileOperations::Id).primary_key())
            .col(text(ProfileOperations::ProfileId))
            .col(text_null(ProfileOperations::SavingProfileId).unique_key())
            .col(big_integer(ProfileOperations::BaseVersion))
            .col(text_null(ProfileOperations::Blob))
            .col(integer_null(ProfileOperations::ProcessId))
            .col(big_integer(ProfileOperations::StartedAt))
            .to_owned();
        manager.create_table(operations).await?;
        let removals = Table::create()
            .table(ProfileBlobRemovals::Table)
            .col(text(ProfileBlobRemovals::Blob).primary_key())
            .col(integer_null(ProfileBlobRemovals::ProcessId))
            .col(big_integer(ProfileBlobRemovals::StartedAt))
            .to_owned();
        manager.create_table(removals).await?;
        let locks = Table::create()
            .table(ProfileWriteLocks::Table)
            .col(text(ProfileWriteLocks::ProfileId).primary_key())
            .col(text(ProfileWriteLocks::BrowserId).unique_key())
            .to_owned();
        manager.create_table(locks).await?;
        // SQLite adds one column at a time.
        for column in [
            text_null(Browsers::ProfileId),
            boolean(Browsers::SaveChanges).default(false).take(),
        ] {
            let table = Table::alter()
                .table(Browsers::Table)
                .add_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        for index in indexes() {
            manager.create_index(index).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let index = Index::drop()
            .name("browsers_by_profile")
            .table(Browsers::Table)
            .to_owned();
        manager.drop_index(index).await?;
        for column in [Browsers::SaveChanges, Browsers::ProfileId] {
            let table = Table::alter()
                .table(Browsers::Table)
                .drop_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        for table in [
            Table::drop().table(ProfileWriteLocks::Table).to_owned(),
            Table::drop().table(ProfileBlobRemovals::Table).to_owned(),
            Table::drop().table(ProfileOperations::Table).to_owned(),
            Table::drop().table(ProfileVersions::Table).to_owned(),
            Table::drop().table(Profiles::Table).to_owned(),
        ] {
            manager.drop_table(table).await?;
        }
        Ok(())
    }
}

fn profiles() -> TableCreateStatement {
    Table::create()
        .table(Profiles::Table)
        .col(text(Profiles::Id).primary_key())
        // No foreign key, which would be a rule for older programs.
        .col(text(Profiles::ProjectId))
        .col(text_null(Profiles::Name))
        .col(text_null(Profiles::LiveName))
        .col(big_integer(Profiles::Version))
        .col(big_integer_null(Profiles::SizeBytes))
        .col(big_integer(Profiles::CreatedAt))
        .col(big_integer(Profiles::UpdatedAt))
        .col(big_integer_null(Profiles::LastUsedAt))
        .col(big_integer_null(Profiles::DeletedAt))
        .col(text_null(Profiles::SaveError))
        .col(big_integer_null(Profiles::SaveFailedAt))
        .to_owned()
}

fn versions() -> TableCreateStatement {
    Table::create()
        .table(ProfileVersions::Table)
        .col(text(ProfileVersions::ProfileId))
        .col(big_integer(ProfileVersions::Number))
        .col(text(ProfileVersions::Blob))
        .col(big_integer(ProfileVersions::SizeBytes))
        .col(text(ProfileVersions::Receipt))
        .col(text_null(ProfileVersions::ChromiumVersion))
        .col(big_integer_null(ProfileVersions::RestoredFrom))
        .col(big_integer(ProfileVersions::CreatedAt))
        .primary_key(
            Index::create()
                .col(ProfileVersions::ProfileId)
                .col(ProfileVersions::Number),
        )
        .foreign_key(
            ForeignKey::create()
                .from(ProfileVersions::Table, ProfileVersions::ProfileId)
                .to(Profiles::Table, Profiles::Id)
                .on_delete(ForeignKeyAction::Restrict),
        )
        .to_owned()
}

fn indexes() -> [IndexCreateStatement; 5] {
    [
        Index::create()
            .name("profiles_live_name")
            .table(Profiles::Table)
            .col(Profiles::ProjectId)
            .col(Profiles::LiveName)
            .unique()
            .to_owned(),
        Index::create()
            .name("profiles_of_a_project")
            .table(Profiles::Table)
            .col(Profiles::ProjectId)
            .col(Profiles::Id)
            .to_owned(),
        Index::create()
            .name("profile_versions_by_blob")
            .table(ProfileVersions::Table)
            .col(ProfileVersions::Blob)
            .to_owned(),
        Index::create()
            .name("profile_operations_by_blob")
            .table(ProfileOperations::Table)
            .col(ProfileOperations::Blob)
            .to_owned(),
        Index::create()
            .name("browsers_by_profile")
            .table(Browsers::Table)
            .col(Browsers::ProfileId)
            .to_owned(),
    ]
}
