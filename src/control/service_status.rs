//! The status of control for the service manager: its address, and whether it leads.

use std::{convert::Infallible, net::SocketAddr};

use tokio::sync::watch;

use super::processes::Leadership;
use crate::{
    service_report::{ServiceReport, changed},
    shutdown::Shutdown,
};

/// Whether this process leads, if there may be others.
type Leads = Option<watch::Receiver<bool>>;

/// Reports that control is ready, and its status until shutdown.
pub(super) fn start(address: SocketAddr, leadership: &Leadership, shutdown: &Shutdown) {
    let leads = leadership.watch();
    let first = text(address, &leads);
    ServiceReport::start(first, |report| follow(address, leads, report), shutdown);
}

async fn follow(address: SocketAddr, mut leads: Leads, report: ServiceReport) -> Infallible {
    loop {
        changed(leads.as_mut()).await;
        report.set_status(text(address, &leads));
    }
}

fn text(address: SocketAddr, leads: &Leads) -> String {
    let role = match leads.as_ref().map(|leads| *leads.borrow()) {
        None => "",
        Some(true) => " This process leads.",
        Some(false) => " Another process leads.",
    };
    format!("Listening on {address}.{role}")
}
