//! Hints between the control processes of a PostgreSQL database, through its notifications.
//!
//! Each process sends from one task, after the commit of what the hint is about, because the
//! notifications of a database are ordered by a lock that is held during a commit.

use std::{collections::HashSet, time::Duration};

use sea_orm::{ConnectionTrait, DatabaseConnection, DbBackend, Statement};
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::mpsc;

use super::PostgresConfig;
use crate::{
    control::store::hints::{Hint, HintSender, Notice, QUEUE},
    shutdown::Shutdown,
};

/// The channel of the notifications.
const CHANNEL: &str = "berth";
/// The delay before a listener is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The hints from this process to the others, and from them.
pub struct HintChannel {
    config: PostgresConfig,
    db: DatabaseConnection,
    queue: mpsc::Receiver<Hint>,
}

impl HintChannel {
    /// Returns the channel, and what puts hints into it.
    pub(in crate::control::store) fn new(
        config: PostgresConfig,
        db: DatabaseConnection,
    ) -> (HintSender, HintChannel) {
        let (sender, queue) = mpsc::channel(QUEUE);
        (sender, HintChannel { config, db, queue })
    }

    /// Sends hints, and reports those of all processes, until shutdown.
    pub async fn run(self, shutdown: Shutdown, report: impl Fn(Notice)) {
        let HintChannel { config, db, queue } = self;
        tokio::select! {
            () = shutdown.requested() => {}
            () = send(&db, queue) => {}
            () = listen(&config, report) => {}
        }
    }
}

async fn send(db: &DatabaseConnection, mut queue: mpsc::Receiver<Hint>) {
    let mut hints = Vec::new();
    while queue.recv_many(&mut hints, QUEUE).await > 0 {
        let distinct: HashSet<String> = hints.drain(..).map(|hint| hint.to_string()).collect();
        let texts: Vec<String> = distinct.into_iter().collect();
        let query = "SELECT pg_notify($1, hint) FROM unnest($2::text[]) AS hint";
        let values = [CHANNEL.into(), texts.into()];
        let statement = Statement::from_sql_and_values(DbBackend::Postgres, query, values);
        if let Err(error) = db.query_all_raw(statement).await {
            tracing::debug!(%error, "cannot notify other control processes");
        }
    }
}

/// Reports the hints of all processes. Connects again for ever.
async fn listen(config: &PostgresConfig, report: impl Fn(Notice)) {
    loop {
        if let Err(error) = listen_once(config, &report).await {
            tracing::warn!(%error, "cannot listen to other control processes");
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

async fn listen_once(config: &PostgresConfig, report: &impl Fn(Notice)) -> Result<(), sqlx::Error> {
    let own = PgPoolOptions::new()
        .max_connections(1)
        .connect_lazy_with(config.options.clone());
    let mut listener = PgListener::connect_with(&own).await?;
    listener.listen(CHANNEL).await?;
    // What was changed before is not known.
    report(Notice::Missed);
    while let Some(notification) = listener.try_recv().await? {
        match Hint::parse(notification.payload()) {
            Some(hint) => report(Notice::Hint(hint)),
            None => tracing::debug!("received an unknown hint"),
        }
    }
    Ok(())
}
