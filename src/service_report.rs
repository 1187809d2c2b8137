//! Reports of a running server to its service manager.
//!
//! ```text
//! start ──▶ ready, status ──▶ status (each change), watchdog (its interval) ──▶ stopping
//! ```

use std::time::Duration;

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
    /// Reports that the server is ready, with its first status, and goes on until shutdown. Returns
    /// `None` if no service manager expects it.
    pub fn start(status: String, shutdown: &Shutdown) -> Option<ServiceReport> {
        if !service_manager::is_present() {
            return None;
        }
        let (status, reported) = watch::channel(status);
        shutdown.spawn(report(reported, shutdown.clone()));
        Some(ServiceReport { status })
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
    service_manager::notify_stopping();
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
