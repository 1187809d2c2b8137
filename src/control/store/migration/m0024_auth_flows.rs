//! Creates the tables of login flows, of their states and of the timeline of auth connections.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum AuthFlows {
    Table,
    Id,
    ProjectId,
    ConnectionId,
    ActiveConnectionId,
    State,
    Version,
    PageMark,
    AnswersKeyVersion,
    SealedAnswers,
    StartedBy,
    HandoffDigest,
    HandoffExpiresAt,
    RecordSession,
    ReplayId,
    Driver,
    CreatedAt,
    EndedAt,
}

#[derive(DeriveIden)]
enum AuthFlowStates {
    Table,
    FlowId,
    Number,
    State,
}

#[derive(DeriveIden)]
enum AuthTimeline {
    Table,
    Id,
    ConnectionId,
    EventType,
    FlowId,
    Status,
    PreviousStatus,
    Step,
    ErrorCode,
    WebsiteError,
    BrowserId,
    ReplayId,
    CreatedAt,
    CompletedAt,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [flows(), states(), timeline()] {
            manager.create_table(table).await?;
        }
        for index in indexes() {
            manager.create_index(index).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [
            Table::drop().table(AuthTimeline::Table).to_owned(),
            Table::drop().table(AuthFlowStates::Table).to_owned(),
            Table::drop().table(AuthFlows::Table).to_owned(),
        ] {
            manager.drop_table(table).await?;
        }
        Ok(())
    }
}

fn flows() -> TableCreateStatement {
    Table::create()
        .table(AuthFlows::Table)
        .col(text(AuthFlows::Id).primary_key())
        .col(text(AuthFlows::ProjectId))
        .col(text(AuthFlows::ConnectionId))
        // Unique while the flow is in progress.
        .col(text_null(AuthFlows::ActiveConnectionId))
        .col(text(AuthFlows::State))
        .col(big_integer(AuthFlows::Version))
        .col(text_null(AuthFlows::PageMark))
        .col(big_integer_null(AuthFlows::AnswersKeyVersion))
        .col(blob_null(AuthFlows::SealedAnswers))
        .col(text_null(AuthFlows::StartedBy))
        .col(text_null(AuthFlows::HandoffDigest))
        .col(big_integer_null(AuthFlows::HandoffExpiresAt))
        .col(boolean(AuthFlows::RecordSession))
        .col(text_null(AuthFlows::ReplayId))
        .col(integer_null(AuthFlows::Driver))
        .col(big_integer(AuthFlows::CreatedAt))
        .col(big_integer_null(AuthFlows::EndedAt))
        .to_owned()
}

fn states() -> TableCreateStatement {
    Table::create()
        .table(AuthFlowStates::Table)
        .col(text(AuthFlowStates::FlowId))
        .col(big_integer(AuthFlowStates::Number))
        .col(text(AuthFlowStates::State))
        .primary_key(
            Index::create()
                .col(AuthFlowStates::FlowId)
                .col(AuthFlowStates::Number),
        )
        .to_owned()
}

fn timeline() -> TableCreateStatement {
    Table::create()
        .table(AuthTimeline::Table)
        .col(text(AuthTimeline::Id).primary_key())
        .col(text(AuthTimeline::ConnectionId))
        .col(text(AuthTimeline::EventType))
        .col(text_null(AuthTimeline::FlowId))
        .col(text(AuthTimeline::Status))
        .col(text_null(AuthTimeline::PreviousStatus))
        .col(text_null(AuthTimeline::Step))
        .col(text_null(AuthTimeline::ErrorCode))
        .col(text_null(AuthTimeline::WebsiteError))
        .col(text_null(AuthTimeline::BrowserId))
        .col(text_null(AuthTimeline::ReplayId))
        .col(big_integer(AuthTimeline::CreatedAt))
        .col(big_integer_null(AuthTimeline::CompletedAt))
        .to_owned()
}

fn indexes() -> [IndexCreateStatement; 5] {
    let flows = |name: &str| {
        Index::create()
            .name(name)
            .table(AuthFlows::Table)
            .to_owned()
    };
    let timeline = |name: &str| {
        Index::create()
            .name(name)
            .table(AuthTimeline::Table)
            .col(AuthTimeline::ConnectionId)
            .to_owned()
    };
    [
        flows("auth_flows_active_connection")
            .col(AuthFlows::ActiveConnectionId)
            .unique()
            .to_owned(),
        flows("auth_flows_of_a_connection")
            .col(AuthFlows::ConnectionId)
            .col(AuthFlows::Id)
            .to_owned(),
        flows("auth_flows_by_end")
            .col(AuthFlows::EndedAt)
            .to_owned(),
        timeline("auth_timeline_of_a_connection")
            .col(AuthTimeline::CreatedAt)
            .col(AuthTimeline::Id)
            .to_owned(),
        timeline("auth_timeline_by_type")
            .col(AuthTimeline::EventType)
            .col(AuthTimeline::CreatedAt)
            .col(AuthTimeline::Id)
            .to_owned(),
    ]
}
