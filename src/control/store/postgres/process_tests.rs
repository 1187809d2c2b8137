//! Tests of several control processes on one database.

use std::{collections::HashSet, time::Duration};

use super::{process_lock::ProcessLock, tests::until, *};
use crate::{
    api::ids::BrowserId,
    control::store::{Hint, NewProcess, Notice, OpenError, Store, test_database::TestDatabase},
    shutdown::Shutdown,
};

/// Returns a process that runs its hosts itself.
fn local(state_dir: &str) -> NewProcess {
    NewProcess {
        is_exclusive: true,
        state_dir: Some(state_dir.to_owned()),
        common: "common".to_owned(),
        location: format!("host:/{state_dir}"),
    }
}

/// Starts a process that may start at once.
async fn join(database: &TestDatabase, process: NewProcess) -> (Store, ProcessLock) {
    let config = database.config().unwrap();
    let joined = database.open().await.join_processes(&config, process).await;
    let (store, lock, _) = joined.unwrap();
    (store, lock)
}

async fn refused(database: &TestDatabase, process: NewProcess) -> OpenError {
    let config = database.config().unwrap();
    let joined = database.open().await.join_processes(&config, process).await;
    joined.err().unwrap()
}

/// Waits until no locks of processes are held.
async fn until_released(store: &Store) {
    until(async || {
        let live = store.live_processes().await;
        live.is_ok_and(|live| live.is_empty())
    })
    .await;
}

#[tokio::test]
async fn process_with_local_hosts_serves_alone() {
    let database = TestDatabase::create();
    let (store, first) = join(&database, local("a")).await;
    for other in [local("a"), NewProcess::sample("a")] {
        let refused = refused(&database, other).await;
        assert!(
            matches!(&refused.failure, OpenFailure::InUse(by) if by.contains("host:/a")),
            "{refused}"
        );
    }
    drop(first);
    until_released(&store).await;
    // The records of "a" are not those of "b".
    let foreign = refused(&database, local("b")).await.to_string();
    assert!(
        foreign.contains("belong to the state directory host:/a"),
        "{foreign}"
    );
    let (_, second) = join(&database, local("a")).await;
    drop(second);
    until_released(&store).await;
    let (_, shared) = join(&database, NewProcess::sample("c")).await;
    let refused = refused(&database, local("a")).await;
    assert!(
        matches!(&refused.failure, OpenFailure::InUse(by) if by.contains("host:/c")),
        "{refused}"
    );
    drop(shared);
}

#[tokio::test]
async fn processes_with_registered_hosts_serve_together_if_their_settings_agree() {
    let database = TestDatabase::create();
    let (first_store, first) = join(&database, NewProcess::sample("a")).await;
    let (second_store, second) = join(&database, NewProcess::sample("b")).await;
    let ids = [&first_store, &second_store].map(|store| store.process().unwrap());
    assert!(ids[0] < ids[1]);
    assert_eq!(
        first_store.live_processes().await.unwrap(),
        HashSet::from(ids)
    );
    let other = NewProcess {
        common: "other".to_owned(),
        ..NewProcess::sample("c")
    };
    let refused = refused(&database, other.clone()).await;
    assert!(
        matches!(&refused.failure, OpenFailure::OtherSettings(_)),
        "{refused}"
    );
    drop((first, second));
    until_released(&first_store).await;
    // Once the others have ended, the settings may change.
    let (_, changed) = join(&database, other).await;
    drop(changed);
}

#[tokio::test]
async fn another_process_leads_when_the_leader_has_died() {
    let database = TestDatabase::create();
    let (store, first) = join(&database, NewProcess::sample("a")).await;
    let (_, second) = join(&database, NewProcess::sample("b")).await;
    let mut leads = second.leads();
    assert!(*first.leads().borrow() && !*leads.borrow());
    let shutdown = Shutdown::new();
    let holding = tokio::spawn(second.hold(shutdown.clone()));
    let died = store.process().unwrap();
    drop(first);
    let waiting = tokio::time::timeout(Duration::from_secs(60), leads.wait_for(|leads| *leads));
    waiting.await.unwrap().unwrap();
    assert!(!store.live_processes().await.unwrap().contains(&died));
    shutdown.request();
    holding.await.unwrap().unwrap();
}

#[tokio::test]
async fn locks_are_regained_after_a_restart_of_the_server() {
    let database = TestDatabase::create();
    let (store, lock) = join(&database, NewProcess::sample("a")).await;
    let own = store.process().unwrap();
    let shutdown = Shutdown::new();
    let mut leads = lock.leads();
    let holding = tokio::spawn(lock.hold(shutdown.clone()));
    database.postgres.as_ref().unwrap().disconnect_all().await;
    let losing = tokio::time::timeout(Duration::from_secs(60), leads.wait_for(|leads| !leads));
    losing.await.unwrap().unwrap();
    let leading = tokio::time::timeout(Duration::from_secs(60), leads.wait_for(|leads| *leads));
    leading.await.unwrap().unwrap();
    assert_eq!(store.live_processes().await.unwrap(), HashSet::from([own]));
    shutdown.request();
    drop(holding.await.unwrap().unwrap());
}

#[tokio::test]
async fn displaced_process_shuts_down() {
    let database = TestDatabase::create();
    let (store, first) = join(&database, NewProcess::sample("a")).await;
    database.postgres.as_ref().unwrap().disconnect_all().await;
    until_released(&store).await;
    let (_, second) = join(&database, local("b")).await;
    let shutdown = Shutdown::new();
    let displaced = first.hold(shutdown.clone()).await.err().unwrap();
    assert!(displaced.to_string().contains("taken over"), "{displaced}");
    assert!(shutdown.is_requested());
    drop(second);
}

#[tokio::test]
async fn hints_reach_the_other_processes() {
    let database = TestDatabase::create();
    let config = database.config().unwrap();
    let joined = database.open().await;
    let joined = joined
        .join_processes(&config, NewProcess::sample("a"))
        .await
        .unwrap();
    let (sender, _first, sending) = joined;
    let joined = database.open().await;
    let joined = joined
        .join_processes(&config, NewProcess::sample("b"))
        .await
        .unwrap();
    let (_, _second, listening) = joined;
    let shutdown = Shutdown::new();
    let sending = tokio::spawn(sending.run(shutdown.clone(), |_| {}));
    let (reporter, mut notices) = tokio::sync::mpsc::channel(64);
    let listening = listening.run(shutdown.clone(), move |notice| {
        let _ = reporter.try_send(notice);
    });
    let listening = tokio::spawn(listening);
    let mut next = async || {
        let next = tokio::time::timeout(Duration::from_secs(60), notices.recv());
        next.await.unwrap().unwrap()
    };
    // What had changed before is not known.
    assert_eq!(next().await, Notice::Missed);
    let ended = Hint::Browser(BrowserId::generate());
    sender.hint(ended.clone());
    assert_eq!(next().await, Notice::Hint(ended));
    database.postgres.as_ref().unwrap().disconnect_all().await;
    while next().await != Notice::Missed {}
    // A hint may be lost as long as the sender's connections are broken, too.
    let resending = async {
        loop {
            sender.hint(Hint::Access);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        notice = next() => assert_eq!(notice, Notice::Hint(Hint::Access)),
        () = resending => {}
    }
    shutdown.request();
    sending.await.unwrap();
    listening.await.unwrap();
}
