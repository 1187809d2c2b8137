//! The status of control for the service manager: its address, and whether it leads.

use std::net::SocketAddr;

use super::processes::Leadership;
use crate::{service_report::ServiceReport, shutdown::Shutdown};

/// Reports that control is ready, and its status until shutdown.
pub(super) fn start(address: SocketAddr, leadership: Leadership, shutdown: &Shutdown) {
    let first = text(address, &leadership);
    let Some(report) = ServiceReport::start(first, shutdown) else {
        return;
    };
    let stop = shutdown.clone();
    shutdown.spawn(async move {
        tokio::select! {
            () = follow(address, leadership, report) => {}
            () = stop.requested() => {}
        }
    });
}

async fn follow(address: SocketAddr, mut leadership: Leadership, report: ServiceReport) {
    loop {
        leadership.changed().await;
        report.set_status(text(address, &leadership));
    }
}

fn text(address: SocketAddr, leadership: &Leadership) -> String {
    let role = match (leadership.is_shared(), leadership.leads()) {
        (false, _) => "",
        (true, true) => " This process leads.",
        (true, false) => " Another process leads.",
    };
    format!("Listening on {address}.{role}")
}
