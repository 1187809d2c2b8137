//! Reports of a running server to its service manager.
//!
//! ```text
//! start ──▶ ready, status ──▶ status (each change), watchdog (its interval) ──▶ stopping
//! ```

use std::{convert::Infallible, time::Duration};

use tokio::{
    sync::watch,
    time::{Interval, MissedTickBehavior, interval},
};

use crate::{shutdown::Shutdown, system::service_manager};

/// The status of a server, for `systemctl status`.
#[derive(Debug)]
pub struct ServiceReport {
    status: watch::Sender<String>,
}

impl ServiceReport {
    /// Reports that the server is ready, with its first status, and then each status that `follow`
    /// sets, until shutdown. Does nothing if no service manager expects it.
    pub fn start<F>(status: String, follow: impl FnOnce(ServiceReport) -> F, shutdown: &Shutdown)
    where
        F: Future<Output = Infallible> + Send + 'static,
    {
        if !service_manager::is_present() {
            return;
        }
        let (status, reported) = watch::channel(status);
        let following = follow(ServiceReport { status });
        let reporting = report(reported, shutdown.clone());
        shutdown.spawn(async move {
            tokio::select! {
                () = reporting => {}
                never = following => match never {},
            }
        });
    }

    /// Reports the status, one line of text, if it has changed.
    pub fn set_status(&self, status: String) {
        self.status.send_if_modified(|current| {
            let is_changed = *current != status;
            *current = status;
            is_changed
        });
    }
}

/// Resolves when the value changes; never without one, or after its last change.
pub async fn changed<T>(value: Option<&mut watch::Receiver<T>>) {
    let is_changed = match value {
        Some(value) => value.changed().await.is_ok(),
        None => false,
    };
    if !is_changed {
        std::future::pending().await
    }
}

/// Sends the notifications until shutdown. As a task of the runtime it pings the watchdog only
/// while the runtime works.
async fn report(mut status: watch::Receiver<String>, shutdown: Shutdown) {
    service_manager::notify_ready(&status.borrow_and_update());
    let mut watchdog = service_manager::watchdog_interval().map(pings);
    loop {
        tokio::select! {
            Ok(()) = status.changed() => {
                let status = status.borrow_and_update().clone();
                service_manager::notify_status(&status);
            }
            () = next_ping(watchdog.as_mut()) => service_manager::ping_watchdog(),
            () = shutdown.requested() => break,
        }
    }
    if !shutdown.is_handover() {
        service_manager::notify_stopping();
    }
}

fn pings(period: Duration) -> Interval {
    let mut pings = interval(period);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings
}

async fn next_ping(pings: Option<&mut Interval>) {
    match pings {
        Some(pings) => {
            pings.tick().await;
        }
        None => std::future::pending().await,
    }
}
